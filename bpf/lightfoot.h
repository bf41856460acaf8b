/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The contract between kernel and user space: layouts, limits, numbers. The mirror in Rust is crates/kernel/src/abi.rs;
 * sizes and offsets are asserted on both sides. "pid" and "tid" are what users call so (the kernel's tgid and pid).
 */
#pragma once

/* Frames kept of one stack. A deeper stack keeps its leaf side and is marked LF_TRUNCATED. */
#define LF_MAX_USER_FRAMES 1024
#define LF_MAX_KERNEL_FRAMES 127
#define LF_COMM_BYTES 16
/* Nesting of pid namespaces. Source: MAX_PID_NS_LEVEL, include/linux/pid_namespace.h. */
#define LF_MAX_PIDNS_LEVEL 32

/* How a recorded stack ended. Mirror: model::StackOutcome. */
enum lf_outcome {
	LF_COMPLETE = 0,
	LF_TRUNCATED = 1,
	LF_FRAME_POINTER_BROKEN = 2,
	LF_UNREADABLE = 3,
};

/* Which tasks are wanted. */
enum lf_target {
	LF_TARGET_ALL = 0,       /* every task but the idle ones */
	LF_TARGET_PROCESSES = 1, /* processes in the map `targets`, which follows forks */
	LF_TARGET_CGROUP = 2,    /* tasks below the cgroup in the map `target_cgroup` */
};

/* Set by user space before load; never changes afterwards. */
struct lf_config {
	__u32 target;          /* enum lf_target */
	__u32 kernel_frames;   /* 0: no kernel stacks, and kernel threads are filtered */
	__u32 count_in_kernel; /* 1: equal stacks are counted in `counts`; 0: each sample goes through the ring */
	__u32 wakeup_bytes;    /* wake user space when this much waits in the ring */
	__u32 pidns_inode;     /* user space's own pid namespace, in which pids are given and told; 0 if it is the initial one */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_config) == 24, "keep in step with abi.rs");

/* One row per CPU, written by that CPU only (a perf_event program never nests on its CPU). All in samples unless said. */
struct lf_counters {
	__u64 fired;
	__u64 recorded;
	__u64 filtered;
	__u64 throttled;
	__u64 lost;       /* the ring was full */
	__u64 no_scratch; /* failed: FailureReason::NoScratch */
	__u64 no_frames;  /* failed: FailureReason::NoFrames */
	__u64 run_ns;     /* time from the program's first to its last clock read */
	__u64 sent;       /* records sent through the ring */
	__u64 sent_bytes; /* bytes of these records, headers of the ring not included */
	__u64 uncounted;  /* `counts` was full: the sample went through the ring instead (recorded, not lost) */
	__u64 user_frames;
	__u64 follow_ns;  /* run time of on_fork and on_exit; these may nest, so it is added to atomically */
	__u64 unfollowed; /* processes not followed: `targets` was full; added to atomically */
	__u64 reserved[2];
};
_Static_assert(sizeof(struct lf_counters) == 128, "keep in step with abi.rs");

/*
 * A stack on its way to user space: this header, then kernel_frames addresses, then user_frames addresses, each part leaf
 * first. The first address of a part is an instruction's, the others are return addresses; when the sample hit the kernel, the
 * first user address is the one that the system call, fault or interrupt returns to.
 */
struct lf_record {
	__u64 time_ns;          /* CLOCK_MONOTONIC */
	__u64 stack;            /* key in `counts`: hash of all that follows but time and count */
	__u64 process_start_ns; /* ns since boot: with pid the process's identity */
	__u64 thread_start_ns;
	__u64 exec_id;          /* counts the programs that the process has executed */
	__u32 pid;
	__u32 tid;
	__u32 count;            /* samples that this record itself stands for: 0 if they are counted in `counts` */
	__u32 outcome;          /* enum lf_outcome */
	__u32 kernel_frames;
	__u32 user_frames;
	char comm[LF_COMM_BYTES];
};
_Static_assert(sizeof(struct lf_record) == 80, "keep in step with abi.rs");
