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
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

/* include/linux/sched.h */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
/* VM_EXEC, include/linux/mm.h */
#define VM_EXEC 0x4

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

struct super_block {
	unsigned int s_dev;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	__u32 i_generation;
	__s64 i_mtime_sec; /* since Linux 6.11 */
	__u32 i_mtime_nsec;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct inode___until_6_10 {
	struct timespec64 __i_mtime;
};

struct inode___until_6_6 {
	struct timespec64 i_mtime;
};

struct qstr {
	unsigned int len;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
};

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

/* Before Linux 6.1 mappings hang in a red-black tree. */
struct vm_area_struct___rb {
	struct rb_node vm_rb;
};

struct maple_tree {
	void *ma_root;
};

typedef struct {
	void *vdso;
} mm_context_t;

struct mm_struct {
	struct maple_tree mm_mt;
	void *pgd;
	mm_context_t context;
};

struct mm_struct___rb {
	struct rb_root mm_rb;
};

/* CONFIG_PER_VMA_LOCK: changes with each change of the mappings. A number since Linux 6.4, a sequence count since 6.14. */
struct mm_struct___number {
	int mm_lock_seq;
};
struct sequence {
	unsigned int sequence;
};
struct mm_struct___sequence {
	struct sequence mm_lock_seq;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#elif defined(__TARGET_ARCH_arm64)
struct thread_struct_uw {
	unsigned long tp_value;
};
struct thread_struct {
	struct thread_struct_uw uw;
};
#endif

/* CONFIG_SCHED_INFO: how long a task waited for a CPU, in ns of its run queue's clock. */
struct sched_info {
	unsigned long pcount;            /* how often it got a CPU */
	unsigned long long run_delay;    /* waits that are over */
	unsigned long long last_arrival; /* when it last got a CPU */
	unsigned long long last_queued;  /* since when it waits; 0: it does not */
};

struct rq {
	__u64 clock;
};

/* rq is there with CONFIG_FAIR_GROUP_SCHED. */
struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	unsigned int __state;
	struct sched_entity se;
	int on_cpu;
	int exit_state;
	struct sched_info sched_info;
	struct css_set *cgroups;
	__u64 start_time;
	unsigned int flags;
	unsigned int in_execve : 1;
	struct mm_struct *mm;
	struct thread_struct thread;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	__u64 start_boottime;
	__u64 self_exec_id;
	char comm[16];
};

/* Before Linux 5.14. */
struct task_struct___state {
	long state;
};

struct hrtimer {
	void *function;
};

struct bpf_iter__task {
	struct task_struct *task;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
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

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 seq_num;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};


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
