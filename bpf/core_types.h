/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The kernel as these programs see it: only the types, fields and constants that are read. libbpf relocates each
 * field access against the running kernel's BTF (CO-RE), so sizes and offsets here do not matter; names do.
 * Fields and values are those of include/linux/sched.h, include/uapi/linux/bpf.h and arch ptrace.h.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* enum bpf_map_type and flags, include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

/* PF_KTHREAD, include/linux/sched.h */
#define PF_KTHREAD 0x00200000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* One number per pid namespace, from the initial one (0) to the task's own (level). */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	__u64 start_boottime;
	__u64 self_exec_id;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
	unsigned long cs;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
};
#endif

#pragma clang attribute pop

/*
 * The context of a perf_event program: struct bpf_perf_event_data, include/uapi/linux/bpf_perf_event.h. Its layout is
 * kernel ABI, its fields are not relocated.
 */
#if defined(__TARGET_ARCH_x86)
struct bpf_perf_event_data {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
	__u64 sample_period;
	__u64 addr;
};
#elif defined(__TARGET_ARCH_arm64)
struct bpf_perf_event_data {
	__u64 regs[31];
	__u64 sp, pc, pstate;
	__u64 sample_period;
	__u64 addr;
};
#endif
