// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The sampling program: timer -> filter -> user stack (frame pointers) + kernel stack -> counted here or sent.
 *
 * Each way out of on_sample() counts exactly one of recorded, filtered, throttled, lost, no_scratch, no_frames, so that
 * their sum is `fired`. Filtering comes before any stack is walked.
 */
#include "core_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "lightfoot.h"

const volatile struct lf_config config = {};

/* Rows by CPU number; user space sets max_entries to the number of possible CPUs and maps it into memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_counters);
} counters SEC(".maps");

struct scratch {
	struct lf_record record;
	__u64 addresses[LF_MAX_KERNEL_FRAMES + LF_MAX_USER_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* Stacks seen: lf_record::stack -> number of samples. Full: further new stacks go through the ring each time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} counts SEC(".maps");

/* New stacks (all samples if not counted here). Full: the sample is lost and counted so. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Wanted processes by process id (LF_TARGET_PROCESSES). Full: further children are not followed, and counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target_cgroup SEC(".maps");

#if defined(__TARGET_ARCH_x86)
#define CTX_IN_USER_MODE(ctx) (((ctx)->cs & 3) == 3)
#define CTX_IP(ctx) ((ctx)->ip)
#define CTX_FP(ctx) ((ctx)->bp)
#define CTX_SP(ctx) ((ctx)->sp)
#define REGS_IP(regs) BPF_CORE_READ(regs, ip)
#define REGS_FP(regs) BPF_CORE_READ(regs, bp)
#define REGS_SP(regs) BPF_CORE_READ(regs, sp)
#elif defined(__TARGET_ARCH_arm64)
#define CTX_IN_USER_MODE(ctx) (((ctx)->pstate & 0xf) == 0)
#define CTX_IP(ctx) ((ctx)->pc)
#define CTX_FP(ctx) ((ctx)->regs[29])
#define CTX_SP(ctx) ((ctx)->sp)
#define REGS_IP(regs) BPF_CORE_READ(regs, user_regs.pc)
#define REGS_FP(regs) BPF_CORE_READ(regs, user_regs.regs[29])
#define REGS_SP(regs) BPF_CORE_READ(regs, user_regs.sp)
#endif

/* One step of a multiply-xor hash. Stacks that collide (2^-64 each pair) would be counted as one. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/* The number of a pid in user space's own namespace; 0 if it has none there. */
static __always_inline __u32 visible_number(struct pid *pid)
{
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level);

	for (__u32 i = 0; i <= LF_MAX_PIDNS_LEVEL && i <= level; i++) {
		struct upid *number = numbers + i * bpf_core_type_size(struct upid);

		if (BPF_CORE_READ(number, ns, ns.inum) == config.pidns_inode)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

/* Process id as user space knows it. */
static __always_inline __u32 pid_of(struct task_struct *task)
{
	if (config.pidns_inode)
		return visible_number(BPF_CORE_READ(task, group_leader, thread_pid));
	return BPF_CORE_READ(task, tgid);
}

/* Thread id as user space knows it. */
static __always_inline __u32 tid_of(struct task_struct *task)
{
	if (config.pidns_inode)
		return visible_number(BPF_CORE_READ(task, thread_pid));
	return BPF_CORE_READ(task, pid);
}

static __always_inline bool wanted(struct task_struct *task, __u32 pid)
{
	switch (config.target) {
	case LF_TARGET_PROCESSES:
		if (!pid || !bpf_map_lookup_elem(&targets, &pid))
			return false;
		break;
	case LF_TARGET_CGROUP:
		if (bpf_current_task_under_cgroup(&target_cgroup, 0) != 1)
			return false;
		break;
	default:
		if (!BPF_CORE_READ(task, pid)) /* idle */
			return false;
	}
	return config.kernel_frames || !(task->flags & PF_KTHREAD);
}

/* A walk along frame pointers, between two steps. */
struct walk {
	struct scratch *s;
	__u64 fp;    /* where the next frame record {caller's frame pointer, return address} lies */
	__u64 floor; /* stacks grow down: a caller's record lies at or above this */
	__u64 hash;
	__u32 at;      /* index in scratch::addresses of the next frame */
	__u32 outcome; /* valid when the walk has ended */
};

/* One frame. A callback of bpf_loop, which verifies it once; as a plain loop the verifier would follow every iteration. */
static long step(__u64 index, struct walk *w)
{
	__u64 frame[2];

	(void)index;
	if (!w->fp) {
		w->outcome = LF_COMPLETE;
		return 1;
	}
	if (w->fp < w->floor || (w->fp & 7)) {
		w->outcome = LF_FRAME_POINTER_BROKEN;
		return 1;
	}
	if (bpf_probe_read_user(frame, sizeof(frame), (void *)w->fp)) {
		w->outcome = LF_UNREADABLE;
		return 1;
	}
	if (frame[1] < 4096) { /* 0 ends a thread's stack; the zero page holds no code (mmap_min_addr) */
		w->outcome = frame[1] ? LF_FRAME_POINTER_BROKEN : LF_COMPLETE;
		return 1;
	}
	w->floor = w->fp + sizeof(frame);
	w->fp = frame[0];
	__u32 at = w->at;
	if (at >= LF_MAX_KERNEL_FRAMES + LF_MAX_USER_FRAMES) /* cannot be: for the verifier */
		return 1;
	w->s->addresses[at] = frame[1];
	w->hash = mix(w->hash, frame[1]);
	w->at = at + 1;
	return 0;
}

/* Takes kernel address number `index` into the hash. A callback as step() is: as a plain loop it tripled the time to load. */
static long mix_address(__u64 index, struct walk *w)
{
	if (index >= LF_MAX_KERNEL_FRAMES) /* cannot be: for the verifier */
		return 1;
	w->hash = mix(w->hash, w->s->addresses[index]);
	return 0;
}

/* Walks the user stack into addresses[at..]. Returns the number of frames. */
static __always_inline __u32 walk_user(struct scratch *s, __u32 at, __u64 ip, __u64 fp, __u64 sp, __u64 *hash)
{
	struct walk w = { .s = s, .fp = fp, .floor = sp, .hash = mix(*hash, ip), .at = at + 1, .outcome = LF_TRUNCATED };

	if (at < LF_MAX_KERNEL_FRAMES + LF_MAX_USER_FRAMES)
		s->addresses[at] = ip;
	bpf_loop(LF_MAX_USER_FRAMES - 1, step, &w, 0);
	*hash = w.hash;
	s->record.outcome = w.outcome;
	return w.at - at;
}

static __always_inline __u64 wakeup_flag(void)
{
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) >= config.wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Sends the record; false if the ring is full. */
static __always_inline bool send(struct scratch *s, struct lf_counters *c)
{
	__u32 frames = s->record.kernel_frames + s->record.user_frames;
	__u64 bytes = sizeof(s->record) + (__u64)frames * sizeof(__u64);

	if (bytes > sizeof(*s)) /* cannot be: for the verifier */
		return false;
	if (bpf_ringbuf_output(&records, s, bytes, wakeup_flag()))
		return false;
	c->sent++;
	c->sent_bytes += bytes;
	return true;
}

static __always_inline void sample(struct bpf_perf_event_data *ctx, struct lf_counters *c, __u64 now)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 pid = pid_of(task), zero = 0;

	if (!wanted(task, pid)) {
		c->filtered++;
		return;
	}
	struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	if (!s) {
		c->no_scratch++;
		return;
	}
	struct lf_record *r = &s->record;

	r->time_ns = now;
	r->pid = pid;
	r->tid = tid_of(task);
	r->process_start_ns = task->group_leader->start_boottime;
	r->thread_start_ns = task->start_boottime;
	r->exec_id = task->self_exec_id;
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	r->outcome = LF_COMPLETE;
	r->kernel_frames = 0;
	r->user_frames = 0;

	bool user_mode = CTX_IN_USER_MODE(ctx);
	__u64 hash = mix(mix(r->thread_start_ns, task->pid), r->exec_id);
	hash = mix(mix(hash, ((__u64 *)r->comm)[0]), ((__u64 *)r->comm)[1]);

	__u32 k = 0;
	if (!user_mode && config.kernel_frames) {
		long bytes = bpf_get_stack(ctx, s->addresses, LF_MAX_KERNEL_FRAMES * sizeof(__u64), 0);

		if (bytes > 0)
			k = (__u32)bytes / sizeof(__u64);
		if (k > LF_MAX_KERNEL_FRAMES) /* cannot be: for the verifier */
			k = LF_MAX_KERNEL_FRAMES;
		struct walk w = { .s = s, .hash = hash };

		bpf_loop(k, mix_address, &w, 0);
		hash = w.hash;
	}
	r->kernel_frames = k;

	if (user_mode)
		r->user_frames = walk_user(s, k, CTX_IP(ctx), CTX_FP(ctx), CTX_SP(ctx), &hash);
	else if (!(task->flags & PF_KTHREAD)) {
		struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

		r->user_frames = walk_user(s, k, REGS_IP(regs), REGS_FP(regs), REGS_SP(regs), &hash);
	}
	if (!r->kernel_frames && !r->user_frames) {
		c->no_frames++;
		return;
	}
	c->user_frames += r->user_frames;
	hash = mix(hash, r->outcome);
	r->stack = hash;
	r->count = 1;
	if (config.count_in_kernel) {
		__u64 *count = bpf_map_lookup_elem(&counts, &hash);

		if (count) {
			/* Atomic although a thread runs on one CPU at a time: another with the same hash may not. */
			__sync_fetch_and_add(count, 1);
			c->recorded++;
			return;
		}
		/*
		 * A new stack. It is entered before it is sent (the other order could send it twice), as none; the sample counts
		 * once it is on its way. If the ring is full the entry goes again: the next such sample tries anew.
		 */
		__u64 none = 0;

		if (bpf_map_update_elem(&counts, &hash, &none, BPF_NOEXIST))
			c->uncounted++;
		else {
			r->count = 0;
			if (!send(s, c)) {
				bpf_map_delete_elem(&counts, &hash);
				c->lost++;
				return;
			}
			count = bpf_map_lookup_elem(&counts, &hash);
			if (count)
				__sync_fetch_and_add(count, 1);
			c->recorded++;
			return;
		}
	}
	if (send(s, c))
		c->recorded++;
	else
		c->lost++;
}

static __always_inline struct lf_counters *own_counters(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&counters, &cpu);
}

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	struct lf_counters *c = own_counters();

	if (!c) /* cannot be: there is a row for every possible CPU */
		return 0;
	__u64 now = bpf_ktime_get_ns();

	c->fired++;
	sample(ctx, c, now);
	c->run_ns += bpf_ktime_get_ns() - now;
	return 0;
}

/* Calibration: what an interrupt with an empty program costs. */
SEC("perf_event")
int on_nothing(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	return 0;
}

/* LF_TARGET_PROCESSES: children of wanted processes are wanted. */
SEC("raw_tp/sched_process_fork")
int on_fork(__u64 *args)
{
	__u64 start = bpf_ktime_get_ns();
	struct lf_counters *c = own_counters();
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	__u32 parent_pid = pid_of(parent), child_pid = pid_of(child), one = 1;

	if (!c)
		return 0;
	if (parent_pid != child_pid && parent_pid && bpf_map_lookup_elem(&targets, &parent_pid) &&
	    bpf_map_update_elem(&targets, &child_pid, &one, BPF_ANY))
		__sync_fetch_and_add(&c->unfollowed, 1);
	__sync_fetch_and_add(&c->follow_ns, bpf_ktime_get_ns() - start);
	return 0;
}

/* LF_TARGET_PROCESSES: a pid whose last thread is gone may be used again by a process that is not wanted. */
SEC("raw_tp/sched_process_exit")
int on_exit(__u64 *args)
{
	__u64 start = bpf_ktime_get_ns();
	struct lf_counters *c = own_counters();
	struct task_struct *task = (void *)args[0];
	__u32 pid = pid_of(task);

	if (!c)
		return 0;
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&targets, &pid);
	__sync_fetch_and_add(&c->follow_ns, bpf_ktime_get_ns() - start);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
