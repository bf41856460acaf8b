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

/* Mappings kept of one stack, one for each object that it passes through. */
#define LF_MAX_SEGMENTS 32
/* Bytes of the stack that go with what a walk began with (lf_failed), at most. */
#define LF_FAILED_STACK_BYTES 65536
#define LF_MAX_PATH_BYTES 1024

/* How the user part of a recorded stack ended. Mirror: model::StackOutcome. Numbers are never used again. */
enum lf_outcome {
	LF_COMPLETE = 0,
	LF_TRUNCATED = 1,             /* as many frames as are kept */
	LF_FRAME_POINTER_BROKEN = 2,  /* code without unwind rows, and its frame pointer leads nowhere */
	LF_UNREADABLE = 3,            /* the memory that should hold the caller could not be read */
	LF_NOT_MAPPED = 4,            /* the caller's address is in no executable mapping */
	LF_NO_ROWS_YET = 5,           /* the object is not prepared yet */
	LF_NO_ROWS = 6,               /* the object says nothing about this code, and its frame pointer leads nowhere */
	LF_UNSUPPORTED_RULE = 7,      /* the object says more than the rules can express */
	LF_NOT_GROWING = 8,           /* the caller's frame is not above the callee's */
	LF_REGISTER_UNKNOWN = 9,      /* the rule needs a register that was not recovered */
	LF_NO_MAPPING_FOUND = 10,     /* the kernel's tree of mappings could not be read */
};

/* What went wrong with the frames of an interpreter; the native part of the stack is whole all the same. */
enum lf_interpreter_outcome {
	LF_INTERPRETER_FINE = 0,
	LF_INTERPRETER_NO_THREAD = 1,    /* the interpreter's state of this thread was not found */
	LF_INTERPRETER_UNREADABLE = 2,   /* its memory could not be read */
	LF_INTERPRETER_TOO_MANY = 3,     /* more frames than are kept, or a cycle */
	LF_INTERPRETER_INCONSISTENT = 4, /* caught in the middle of a change */
	LF_INTERPRETER_NOT_YET = 5,      /* it was not known yet when the walk came by; given by user space only */
};

/* Kind of a user frame, in the top byte of its first word. The rest of that word is an address. */
enum lf_frame {
	LF_FRAME_RETURN = 0, /* a return address */
	LF_FRAME_EXACT = 1,  /* the address of an instruction: the leaf, and what a signal interrupted */
	/* Two words: this one has the code object (Python), the iseq or method entry (Ruby); the next one the position in it. */
	LF_FRAME_PYTHON = 2,
	LF_FRAME_RUBY = 3,
	LF_FRAME_GC = 4, /* the interpreter collects garbage: one word, address unused */
};
#define LF_FRAME_KIND_SHIFT 56
#define LF_FRAME_ADDRESS ((1ULL << LF_FRAME_KIND_SHIFT) - 1)

/* How to find the CFA, the caller's stack pointer. Mirror: unwind::CfaKind. */
enum lf_cfa {
	LF_CFA_NONE = 0,          /* nothing is known about this code */
	LF_CFA_SP = 1,            /* sp + cfa_offset */
	LF_CFA_FP = 2,            /* fp + cfa_offset */
	LF_CFA_REGISTER = 3,      /* register cfa_register (DWARF number) + cfa_offset, where all registers are known */
	LF_CFA_DEREF_SP = 4,      /* *(sp + cfa_offset) */
	LF_CFA_DEREF_FP = 5,      /* *(fp + cfa_offset) */
	LF_CFA_PLT = 6,           /* x86-64: sp + 8, and 8 more from byte cfa_offset of each 16-byte entry on */
	LF_CFA_SIGNAL = 7,        /* the kernel's signal frame */
	LF_CFA_FRAME_POINTER = 8, /* a frame record {caller's fp, return address} at fp */
	LF_CFA_BX = 9,            /* x86-64: rbx + cfa_offset */
	LF_CFA_STOP = 10,         /* the outermost frame */
	LF_CFA_UNSUPPORTED = 11,
	LF_CFA_CLONE = 12,        /* around the system call that makes a thread: sp + cfa_offset; in the child and behind a call the outermost frame */
};

/* Where the caller's value of a register is. Mirror: unwind::Saved. */
enum lf_saved {
	LF_SAVED_SAME = 0,      /* unchanged; for the return address: in the link register (arm64) */
	LF_SAVED_AT_CFA = 1,    /* in memory at CFA + offset */
	LF_SAVED_UNDEFINED = 2, /* nobody knows */
	LF_SAVED_AT_FP = 3,     /* in memory at fp + offset: functions that align their stack */
	LF_SAVED_IN_REGISTER = 4, /* return address only: in register `offset` (DWARF number), where all registers are known: vfork */
};

#define LF_RULE_INTERPRETER 1 /* flag: this code is the loop of the object's interpreter */

/* One way to find the caller, shared by all rows that need it. Rule 0 is LF_CFA_NONE. Mirror: unwind::Rule. */
struct lf_rule {
	__u8 cfa; /* enum lf_cfa */
	__u8 cfa_register; /* a register's number; what is added to the word of LF_CFA_DEREF_*; not 0: LF_CFA_FRAME_POINTER leads to another stack */
	__u8 ra; /* enum lf_saved, as the next two */
	__u8 fp;
	__u8 bx;
	__u8 flags;
	__s16 ra_offset;
	__s32 cfa_offset;
	__s16 fp_offset;
	__s16 bx_offset;
};
_Static_assert(sizeof(struct lf_rule) == 16, "keep in step with abi.rs");

/*
 * Rows: __u32, (file offset & 0xffff) << 16 | rule; sorted; a row holds up to the next one. They lie in banks, inner maps of one
 * element each, made when needed. A code page is 64 KiB of an object's file; its rows lie in one bank.
 */
#define LF_BANK_ROWS 65536
#define LF_BANKS 256
#define LF_PAGE_SHIFT 16

struct lf_page {
	__u32 first_row; /* bank << 16 | row in the bank */
	__u32 rows;
};

/* A file that is mapped executable. The vDSO has inode 0 and device LF_VDSO_DEVICE. */
struct lf_object_key {
	__u64 inode;
	__u32 device; /* major << 20 | minor, as the kernel keeps it */
	__u32 generation; /* of the inode, mixed with the time of its last change: other content is another object */
};
#define LF_VDSO_DEVICE 0xffffffff

enum lf_object_state {
	LF_OBJECT_ANNOUNCED = 0, /* user space has been told, or is preparing it */
	LF_OBJECT_READY = 1,
	LF_OBJECT_NO_TABLE = 2,  /* it has none (no ELF file, unreadable, no room): frame pointers are tried */
};

struct lf_object {
	__u32 id;         /* never used again in a run; 0: not given yet */
	__u32 state;      /* enum lf_object_state */
	__u32 first_page; /* index in `pages` of the code page with number page_base */
	__u32 pages;
	__u32 page_base;   /* lowest file offset with rows >> LF_PAGE_SHIFT */
	__u32 interpreter; /* index in `interpreters` + 1; 0: none */
	__u64 used_ns;     /* when a stack last passed through it; written by the kernel side */
	__u64 missed;      /* stacks that ended here because of its state; written by the kernel side */
};
_Static_assert(sizeof(struct lf_object) == 40, "keep in step with abi.rs");

enum lf_language {
	LF_PYTHON = 1,
	LF_RUBY = 2,
};

/* What is known about an interpreter: per object, not per process. The meaning of both tables is the language's (python.h, ruby.h). */
struct lf_interpreter {
	__u32 kind;    /* enum lf_language */
	__u32 version; /* major << 16 | minor << 8 | patch */
	/* Addresses, as distance from where the file would begin in the mapping of the code: segment start - file_offset + this. */
	__u64 symbols[8];
	__u32 offsets[64];
};
_Static_assert(sizeof(struct lf_interpreter) == 328, "keep in step with abi.rs");

/* What user space may change while the programs run. */
struct lf_live {
	__u64 period_ns;       /* weight of a sample where the rate does not move */
	__u64 block_ns;        /* off-CPU: blocked time that one sample stands for on average */
	__u32 user_frames_max; /* depth of user stacks, at most LF_MAX_USER_FRAMES */
	__u32 interpreters;    /* 0: native frames only */
	__u32 tick_keep;       /* tick clock: share of ticks kept, of 2^32; 0 keeps all */
	__u32 waits_max;       /* off-CPU: samples on each CPU until `step` changes, further ones are throttled; 0: no limit */
	__u64 step;            /* changes each time user space looks */
	__u32 deferred;        /* 1: walks that end in a file which is not prepared yet are sent (lf_failed), to be ended by user space */
	__u32 prompt;          /* a stack with an interpreter's frames wakes user space if that last was 1/prompt of its process's age ago; 0: never */
};
_Static_assert(sizeof(struct lf_live) == 48, "keep in step with abi.rs");

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
	__u32 use_loop;        /* 1: bpf_loop (Linux 5.17); 0: plain loops over functions that are verified by themselves */
	__u32 save_failed;     /* 1: failed walks are sent (lf_failed); 2: all walks are */
	__u32 rate_moves;      /* 1: a sample stands for the time since the last firing on its CPU; 0: for lf_live::period_ns */
	__u64 page_offset;     /* off-CPU: start of the kernel's linear mapping of memory; 0: stacks of other tasks cannot be read */
	__u64 tick_function;   /* tick clock: address of the scheduler tick's timer function */
	__u32 page_shift;      /* of a page of memory: 12 on x86-64 */
	__u32 levels;          /* off-CPU: levels of page tables, 4 or 5; 0: no remote memory is read */
	__u64 physical_mask;   /* off-CPU: bits of a page table entry that are a physical address */
	__s64 irq_regs;        /* tick clock: distance of __irq_regs from runqueues among the variables of each CPU */
	__u32 wakers;          /* off-CPU: 1: stacks of those who wake sleepers are taken, too */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_config) == 80, "keep in step with abi.rs");

/*
 * Programs that may interrupt each other on a CPU work in different slots: a perf event may be an NMI, which interrupts tracepoint
 * programs; tracepoint programs with interrupts off do not nest.
 */
enum lf_slot {
	LF_SLOT_EVENT = 0,
	LF_SLOT_TRACEPOINT = 1,
	LF_SLOT_ITERATOR = 2, /* run by user space, may be interrupted by all others */
	LF_SLOTS = 3,
};

/* Buckets of run times: four to each power of two from 256 ns on; the first and the last have what lies beyond. */
#define LF_RUN_TIMES 64
#define LF_RUN_TIMES_FROM 8 /* 2^8 ns */

/* Rows by CPU * LF_SLOTS + slot, written by that CPU and slot only. All in samples unless said. */
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
	__u64 objects_unannounced; /* executable files not told: the map or the ring was full */
	__u64 mappings_walked;     /* mappings looked up in the kernel's trees */
	__u64 rules_searched;      /* rules found by search */
	__u64 rules_cached;        /* rules found in the cache of the CPU */
	__u64 interpreter_frames;
	__u64 switches;            /* off-CPU: context switches seen */
	__u64 switch_ns;           /* off-CPU: run time of the programs at switches that took no sample */
	__u64 blocked_ns;          /* off-CPU: time that wanted threads were off the CPU, all of it */
	__u64 ticks_skipped;       /* tick clock: ticks that were not kept; no part of `fired` */
	__u64 last_fired_ns;       /* when the sampling event last fired on this CPU; the sum means nothing */
	__u64 truncated;           /* stacks cut at the depth in lf_live or LF_MAX_USER_FRAMES */
	__u64 follow_events;       /* times that on_fork and on_exit ran; added to atomically */
	__u64 reserved[6];
	__u64 run_times[LF_RUN_TIMES]; /* samples recorded, by what each cost: see run_time() */
};
_Static_assert(sizeof(struct lf_counters) == 768, "keep in step with abi.rs");

/* What a ring entry is; its first word. */
enum lf_entry {
	LF_ENTRY_STACK = 0,
	LF_ENTRY_OBJECT = 1,
	LF_ENTRY_FAILED = 2,
	LF_ENTRY_NAME = 3, /* a language's own business; layout in python.h, ruby.h */
};

/* A mapping of the code that a stack passes through. */
struct lf_segment {
	__u64 start;
	__u64 end;
	__u64 file_offset; /* of start, in bytes */
	__u64 inode;       /* 0: no file (code made at run time, or the vDSO) */
	__u32 device;
	__u32 generation;
	__u32 object; /* lf_object::id, 0 if it had none yet */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_segment) == 48, "keep in step with abi.rs");

/* LF_ENTRY_OBJECT: a file not seen before. Its path follows: names, leaf first, each NUL-terminated. */
struct lf_object_seen {
	__u32 entry;
	__u32 pid;
	__u32 path_bytes;
	__u32 reserved;
	struct lf_segment segment;
};
_Static_assert(sizeof(struct lf_object_seen) == 64, "keep in step with abi.rs");

/*
 * LF_ENTRY_FAILED: what a walk began with, sent right before the stack's own entry (same `stack`): of failed walks on request, and of
 * walks that ended for want of rows which are being prepared.
 */
struct lf_failed {
	__u32 entry;
	__u32 stack_bytes; /* valid in `bytes` */
	__u64 stack;
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u64 registers[16]; /* by DWARF number, x86-64; arm64: [0] is lr, [1] is x0 */
	__u8 bytes[]; /* memory from sp upwards */
};

/* Why a sample was taken. */
enum lf_sample_kind {
	LF_ON_CPU = 0,
	LF_OFF_CPU = 1,
	LF_WAKER = 2, /* no sample: the stack of who woke a thread, named by lf_record::waker of that thread's samples */
};

/* Off-CPU: why the thread did not run. */
enum lf_wait {
	LF_WAIT_NONE = 0,
	LF_WAIT_RUNNABLE = 1,        /* it could have run, but another task did */
	LF_WAIT_SLEEP = 2,           /* interruptible: timers, locks, sockets, pipes */
	LF_WAIT_UNINTERRUPTIBLE = 3, /* disk and the like */
	LF_WAIT_STOPPED = 4,         /* stopped or traced */
};

/* What off-CPU time is measured with; written by user space. */
struct lf_off_cpu_settings {
	__u64 from_ns;  /* CLOCK_MONOTONIC: nothing before this counts; 0: nothing counts yet */
	__u64 until_ns; /* nothing after this counts; 0: it goes on */
	__u64 cgroup;   /* LF_TARGET_CGROUP: its id */
	__s64 clock_offset; /* at until_ns: CLOCK_MONOTONIC less the clock that waits are measured with */
	__u32 stretch;  /* counts the stretches of time between pauses, from 1 on */
	__u32 reserved;
};
_Static_assert(sizeof(struct lf_off_cpu_settings) == 40, "keep in step with offcpu.rs");

#define LF_WAITS 5

/* One CPU's off-CPU time, all of it and not only what samples were taken of; by enum lf_wait. */
struct lf_off_cpu_sums {
	__u64 blocked_ns[LF_WAITS];
	__u64 intervals[LF_WAITS];
	__u64 unmarked; /* threads not followed: no memory */
	/* Where the next sample lies (off_cpu.h), in ns of blocked time. */
	__u64 stratum_ns;
	__u64 at;
	__u64 point;
	/* lf_live::waits_max: samples taken in this step. */
	__u64 step;
	__u64 taken;
	/* Switches since the last one whose run time was measured, that one not included, and after how many comes the next. */
	__u32 untimed;
	__u32 timed_after;
	/* When that was: CLOCK_MONOTONIC, and the clock that waits are measured with. */
	__u64 timed_ns;
	__u64 timed_clock;
	__u64 read_ns;    /* what reading the clock took */
	__u64 sampled_ns; /* lf_counters::run_ns */
	/* What samples of the wait that has just ended stand for, of its two parts. */
	__u64 weight;
	__u64 weight_runnable;
};
_Static_assert(sizeof(struct lf_off_cpu_sums) == 184, "keep in step with offcpu.rs");

/*
 * A stack on its way to user space: this header, then kernel_frames addresses, then user_words words (enum lf_frame), each part leaf
 * first, then `segments` of struct lf_segment. A kernel part's first address is an instruction's, the others are return addresses;
 * when the sample hit the kernel, the first user word is where the system call, fault or interrupt returns to.
 */
struct lf_record {
	__u32 entry;            /* LF_ENTRY_STACK */
	__u32 kind;             /* enum lf_sample_kind */
	__u64 time_ns;          /* CLOCK_MONOTONIC */
	__u64 stack;            /* key in `counts`: hash of all that follows but time, count, weight and numbers of objects */
	__u64 process_start_ns; /* ns since boot: with pid the process's identity */
	__u64 thread_start_ns;
	__u64 exec_id;          /* counts the programs that the process has executed */
	__u64 weight_ns;        /* time that this record itself stands for: 0 if it is counted in `counts` */
	__u64 waker;            /* off-CPU: lf_record::stack of who ended the wait; 0: not known */
	__u32 pid;
	__u32 tid;
	__u32 count;            /* samples that this record itself stands for: 0 if they are counted in `counts` */
	__u32 outcome;          /* enum lf_outcome */
	__u32 kernel_frames;
	__u32 user_words;
	__u32 segments;
	__u32 wait;             /* enum lf_wait */
	__u32 interpreter_outcome;
	__u32 reserved;
	char comm[LF_COMM_BYTES];
};
_Static_assert(sizeof(struct lf_record) == 120, "keep in step with abi.rs");

/* Value in `counts`. */
struct lf_count {
	__u64 samples;
	__u64 weight_ns;
};
