/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Off-CPU time. Each thread's switch-out is remembered with it; at its switch-in the length of the wait is known, and sampled with
 * a probability proportional to it. Only then the stack is taken: of a task that does not run yet, so its memory is read through its
 * page tables (remote.h). A switch that is not sampled costs two look-ups: the scheduler has just read a clock itself.
 *
 * Which waits are sampled: the short ones of a CPU, laid end to end, are a line that is cut into strata of T (lf_live::block_ns). Each
 * stratum has one point, anywhere in it with the same probability. A wait that covers a point is a sample of weight T. Each wait of d
 * covers d/T points on average whatever its place, so sums are unbiased; each CPU's sum is right to T, not to the square root of the
 * number of samples as with coin tosses; and no rhythm of waits can fall in step with the points. Waits of T and more are all taken,
 * with their own length as weight, and are no part of the line.
 *
 * A wait has two parts: until the thread was woken, and from then on until it got a CPU. The second is taken from the kernel's own
 * accounting (CONFIG_SCHED_INFO) and is a wait of its own (LF_WAIT_RUNNABLE).
 *
 * Who ends a wait is asked at its end, when another CPU has still to decide whether it is sampled. With lf_config::wakers each wait has a
 * random point of its own instead: drawn when it begins, it tells both sides the same.
 */
#pragma once
#include "walk.h"

#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED_OR_TRACED (4 | 8)
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400 /* with UNINTERRUPTIBLE: idle */

/* A thread. */
struct off_cpu {
	__u64 since_ns;  /* when it left its CPU, by switch_clock(); 0: it is on one; SINCE_BEGIN */
	__u64 run_delay; /* its sched_info::run_delay then */
	__u32 wait;      /* enum lf_wait */
	__u32 stretch;   /* lf_off_cpu_settings::stretch in which this was written: older waits were not watched all the time */
	__u64 waker;     /* lf_config::wakers: lf_record::stack of who woke it; 0: not known */
	__u32 point;     /* lf_config::wakers: sampled if it lasts for this part (of 2^32) of lf_live::block_ns, or longer */
	__u32 reserved;
};
/* It has been off its CPU since lf_off_cpu_settings::from_ns. */
#define SINCE_BEGIN 1

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct off_cpu);
} off_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_off_cpu_settings);
} off_cpu_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lf_off_cpu_sums);
} off_cpu_sums SEC(".maps");

/* Whether the run queue's clock can be read: CONFIG_FAIR_GROUP_SCHED. */
static __always_inline bool has_run_queue_clock(void)
{
	return bpf_core_field_exists(((struct cfs_rq *)NULL)->rq);
}

/*
 * The time of a switch in ns, of which only differences mean something: the run queue's clock, which the scheduler has just brought up
 * to date, and which sched_info is kept in. Reading it takes 2 ns, CLOCK_MONOTONIC 26.
 */
static __always_inline __u64 switch_clock(struct task_struct *task)
{
	if (has_run_queue_clock())
		return task->se.cfs_rq->rq->clock;
	return bpf_ktime_get_ns();
}

/* Time that the task has been waiting for a CPU and that is not in its run delay yet. `clock`: its run queue's. */
static __always_inline __u64 queued_ns(struct task_struct *task, __u64 clock)
{
	__u64 queued = task->sched_info.last_queued;

	return has_run_queue_clock() && queued && clock > queued ? clock - queued : 0;
}

/* Whether the task is in the wanted cgroup or below; for the running task there is a helper. */
static __always_inline bool below_cgroup(struct task_struct *task, __u64 id)
{
	struct cgroup_subsys_state *css = (void *)BPF_CORE_READ(task, cgroups, dfl_cgrp);

	css = (void *)css + bpf_core_field_offset(struct cgroup, self);
	for (int level = 0; level < 32 && css; level++) {
		if (BPF_CORE_READ(css, cgroup, kn, id) == id)
			return true;
		css = BPF_CORE_READ(css, parent);
	}
	return false;
}

/* wanted() for a task that may not be the running one. */
static __always_inline bool wanted_task(struct task_struct *task, const struct lf_off_cpu_settings *settings)
{
	__u32 pid;

	if (!task->pid || (!config.kernel_frames && (task->flags & PF_KTHREAD)))
		return false;
	switch (config.target) {
	case LF_TARGET_PROCESSES:
		pid = config.pidns_inode ? pid_of(task) : (__u32)task->tgid;
		return pid && bpf_map_lookup_elem(&targets, &pid);
	case LF_TARGET_CGROUP:
		return below_cgroup(task, settings->cgroup);
	}
	return true;
}

static __always_inline __u64 state_of(struct task_struct *task)
{
	struct task_struct___state *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ(old, state);
}

static __always_inline __u32 wait_of(__u64 state)
{
	if (!state)
		return LF_WAIT_RUNNABLE;
	if (state & TASK_STOPPED_OR_TRACED)
		return LF_WAIT_STOPPED;
	/* A kernel thread that waits for work (TASK_IDLE) is uninterruptible only so that signals do not wake it. */
	if ((state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD))
		return LF_WAIT_UNINTERRUPTIBLE;
	return LF_WAIT_SLEEP;
}

/* What a wait of `d` stands for; 0: it is not sampled. */
static __always_inline __u64 weigh(struct lf_off_cpu_sums *sums, __u64 d, __u64 stratum_ns)
{
	__u64 weight = 0;

	if (!sums->stratum_ns) { /* the first; or the length was changed to 0 */
		sums->stratum_ns = stratum_ns ? stratum_ns : 1;
		sums->at = 0;
		sums->point = sums->stratum_ns * bpf_get_prandom_u32() >> 32;
	}
	if (d >= sums->stratum_ns)
		return d;
	sums->at += d;
	if (sums->at > sums->point) {
		weight = sums->stratum_ns;
		sums->point = ~0ULL; /* each stratum has one */
	}
	if (sums->at >= sums->stratum_ns) {
		sums->at -= sums->stratum_ns;
		/* A new length holds from the next stratum on. */
		sums->stratum_ns = stratum_ns ? stratum_ns : 1;
		sums->point = sums->stratum_ns * bpf_get_prandom_u32() >> 32;
		if (sums->at > sums->point) {
			weight += sums->stratum_ns;
			sums->point = ~0ULL;
		}
	}
	return weight;
}

/* The same for a wait with a point of its own: right on average, but sums are only as right as coin tosses. */
static __always_inline __u64 weigh_drawn(__u64 d, __u64 stratum_ns, __u32 point)
{
	if (d >= stratum_ns)
		return d;
	return d > stratum_ns * point >> 32 ? stratum_ns : 0;
}

/* The task's stack, into scratch. It does not run, or is about to. */
static __always_inline void take_stack_of(struct task_struct *task, struct scratch *s, __u32 wait, __u64 now)
{
	describe(s, task, pid_of(task), LF_OFF_CPU, now);
	s->record.wait = wait;
	s->walk.flags |= WALK_REMOTE;
	s->walk.remote_at = 0;
	if (config.kernel_frames) {
		long bytes = bpf_get_task_stack(task, s->words, LF_MAX_KERNEL_FRAMES * sizeof(__u64), 0);

		take_kernel_frames(LF_SLOT_TRACEPOINT, s, bytes > 0 ? (__u32)bytes / sizeof(__u64) : 0);
	}
	if (config.levels && !(task->flags & PF_KTHREAD) && s->walk.mm) {
#if defined(__TARGET_ARCH_x86)
		struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
#else
		struct user_pt_regs *regs = (void *)bpf_task_pt_regs(task);
#endif
#define FROM_TASK(field) regs->field
		TAKE_REGISTERS(&s->walk, FROM_TASK);
		take_user_frames(LF_SLOT_TRACEPOINT, s);
	}
}

/*
 * A wait of `d` ns is over at `clock`: adds it up, and says in `sums` what samples of its two parts stand for. True if there is one. A
 * function of its own, as the next but one: all functions that are being called may have 512 bytes of stack together, and the walk needs
 * the most of it.
 */
static __noinline bool weigh_wait(struct task_struct *task, struct off_cpu *o, __u64 d, __u64 clock, struct lf_off_cpu_sums *sums)
{
	__u32 zero = 0, wait = o->wait;
	struct lf_live *l = bpf_map_lookup_elem(&live, &zero);
	__u64 runnable = 0;

	if (!l)
		return false;
	if (wait == LF_WAIT_RUNNABLE)
		runnable = d;
	else if (bpf_core_field_exists(task->sched_info)) {
		runnable = task->sched_info.run_delay - o->run_delay + queued_ns(task, clock);
		if (runnable > d) /* the clocks of two CPUs may differ a little */
			runnable = d;
	}
	d -= runnable;
	if (d) {
		sums->blocked_ns[wait & 7] += d; /* below LF_WAITS; the mask is for the verifier */
		sums->intervals[wait & 7]++;
	}
	if (runnable) {
		sums->blocked_ns[LF_WAIT_RUNNABLE] += runnable;
		sums->intervals[LF_WAIT_RUNNABLE]++;
	}
	if (config.wakers && wait != LF_WAIT_RUNNABLE)
		sums->weight = d ? weigh_drawn(d, l->block_ns, o->point) : 0;
	else
		sums->weight = d ? weigh(sums, d, l->block_ns) : 0;
	sums->weight_runnable = runnable ? weigh(sums, runnable, l->block_ns) : 0;
	return sums->weight || sums->weight_runnable;
}

/* The same, and takes the samples. */
static __always_inline void end_wait(struct task_struct *task, struct off_cpu *o, __u64 d, __u64 clock, struct lf_counters *c,
				     struct lf_off_cpu_sums *sums)
{
	__u32 zero = 0, samples;
	struct lf_live *l = bpf_map_lookup_elem(&live, &zero);

	if (!l || !d || d >> 63)
		return;
	c->blocked_ns += d;
	if (!weigh_wait(task, o, d, clock, sums))
		return;

	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);
	__u64 start = bpf_ktime_get_ns();

	samples = !!sums->weight + !!sums->weight_runnable;
	c->fired += samples;
	/* A brake for a storm that begins between two looks of user space. What it holds back is missing in the shares, and is said. */
	if (l->waits_max) {
		if (sums->step != l->step) {
			sums->step = l->step;
			sums->taken = 0;
		}
		if (sums->taken >= l->waits_max) {
			c->throttled += samples;
			return;
		}
		sums->taken++;
	}
	if (!s) {
		c->no_scratch += samples;
		return;
	}
	take_stack_of(task, s, o->wait, start);
	s->record.waker = o->waker;
	if (sums->weight)
		record(LF_SLOT_TRACEPOINT, sums->weight);
	if (sums->weight_runnable) {
		s->record.waker = 0;
		s->record.wait = LF_WAIT_RUNNABLE;
		record(LF_SLOT_TRACEPOINT, sums->weight_runnable);
	}
	c->run_ns += bpf_ktime_get_ns() - s->record.time_ns;
}

static __noinline int switched_out(struct task_struct *prev, bool preempted, __u64 clock, struct lf_off_cpu_sums *sums,
				   struct lf_off_cpu_settings *settings)
{
	__u64 state = preempted ? 0 : state_of(prev);

	if (!prev->pid)
		return 0;
	struct off_cpu *o = bpf_task_storage_get(&off_cpus, prev, NULL, 0);

	if (!o) {
		if ((state & TASK_DEAD) || !wanted_task(prev, settings))
			return 0;
		o = bpf_task_storage_get(&off_cpus, prev, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!o) {
			sums->unmarked++;
			return 0;
		}
	}
	o->stretch = settings->stretch;
	o->since_ns = state & TASK_DEAD ? 0 : clock;
	o->run_delay = prev->sched_info.run_delay;
	o->wait = wait_of(state);
	o->waker = 0;
	if (config.wakers)
		o->point = bpf_get_prandom_u32();
	return 0;
}

static __always_inline void switched_in(struct task_struct *next, __u64 clock, struct lf_counters *c, struct lf_off_cpu_sums *sums,
					struct lf_off_cpu_settings *settings)
{
	if (!next->pid)
		return;
	struct off_cpu *o = bpf_task_storage_get(&off_cpus, next, NULL, 0);

	if (!o) {
		/* A thread that is new: until now it has waited for its first turn. The others were marked when all this began. */
		if (next->start_time < settings->from_ns || !wanted_task(next, settings))
			return;
		o = bpf_task_storage_get(&off_cpus, next, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!o)
			return;
		o->stretch = settings->stretch;
		o->wait = LF_WAIT_RUNNABLE;
		o->since_ns = clock - queued_ns(next, clock);
		/* It may have waited on other CPUs before. */
		if (has_run_queue_clock() && !next->sched_info.pcount)
			o->since_ns -= next->sched_info.run_delay;
	}
	if (o->since_ns && o->stretch == settings->stretch)
		end_wait(next, o, o->since_ns == SINCE_BEGIN ? bpf_ktime_get_ns() - settings->from_ns : clock - o->since_ns, clock, c,
			 sums);
	o->stretch = settings->stretch;
	o->since_ns = 0;
}

/*
 * A clock read costs as much as all the rest: our own time is measured at one switch of 64 on average, a random one, which stands for
 * itself and those since the one before. What reading the clock takes is measured with it and counted once, for this switch only.
 */
#define TIMED_SWITCHES_MASK 127

SEC("?tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	__u32 zero = 0;
	struct lf_off_cpu_settings *settings = bpf_map_lookup_elem(&off_cpu_settings, &zero);
	struct lf_off_cpu_sums *sums = bpf_map_lookup_elem(&off_cpu_sums, &zero);
	struct lf_counters *c = own_counters(LF_SLOT_TRACEPOINT);
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];

	if (!settings || !sums || !c || !settings->from_ns || settings->until_ns)
		return 0;
	bool timed = sums->untimed >= sums->timed_after;
	__u64 clock, ns;

	if (timed) {
		sums->sampled_ns = c->run_ns;
		sums->read_ns = bpf_ktime_get_ns();
		sums->timed_ns = bpf_ktime_get_ns();
		sums->read_ns = sums->timed_ns - sums->read_ns;
	}
	clock = switch_clock(next);
	if (timed)
		sums->timed_clock = clock;
	c->switches++;
	sums->untimed++;
	switched_out(prev, ctx[0], clock, sums, settings);
	switched_in(next, clock, c, sums, settings);
	if (!timed)
		return 0;
	/* Samples are booked by themselves. */
	ns = bpf_ktime_get_ns() - sums->timed_ns - (c->run_ns - sums->sampled_ns) - sums->read_ns;
	if (!(ns >> 63))
		c->switch_ns += ns * sums->untimed;
	c->switch_ns += 3 * sums->read_ns;
	sums->untimed = 0;
	sums->timed_after = bpf_get_prandom_u32() & TIMED_SWITCHES_MASK;
	return 0;
}

/* The stack of the running task, which wakes another one, into scratch. In an interrupt the task has nothing to do with it. */
static __always_inline void take_waker_stack(void *ctx, struct scratch *s, __u64 now)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	describe(s, task, pid_of(task), LF_WAKER, now);
	if (config.kernel_frames) {
		long bytes = bpf_get_stack(ctx, s->words, LF_MAX_KERNEL_FRAMES * sizeof(__u64), 0);

		take_kernel_frames(LF_SLOT_TRACEPOINT, s, bytes > 0 ? (__u32)bytes / sizeof(__u64) : 0);
	}
	if (!(task->flags & PF_KTHREAD) && s->walk.mm) {
#if defined(__TARGET_ARCH_x86)
		struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
#else
		struct user_pt_regs *regs = (void *)bpf_task_pt_regs(task);
#endif
		TAKE_REGISTERS(&s->walk, FROM_TASK);
		take_user_frames(LF_SLOT_TRACEPOINT, s);
	}
}

/* lf_config::wakers: somebody ends a wait. */
SEC("?tp_btf/sched_waking")
int on_waking(__u64 *ctx)
{
	__u32 zero = 0;
	struct lf_off_cpu_settings *settings = bpf_map_lookup_elem(&off_cpu_settings, &zero);
	struct lf_off_cpu_sums *sums = bpf_map_lookup_elem(&off_cpu_sums, &zero);
	struct lf_live *l = bpf_map_lookup_elem(&live, &zero);
	struct lf_counters *c = own_counters(LF_SLOT_TRACEPOINT);
	struct task_struct *task = (void *)ctx[0];

	/* Without a switch on this CPU yet the distance of the clocks is not known. */
	if (!settings || !sums || !l || !c || !settings->from_ns || settings->until_ns || !sums->timed_clock)
		return 0;
	struct off_cpu *o = bpf_task_storage_get(&off_cpus, task, NULL, 0);

	if (!o || !o->since_ns || o->stretch != settings->stretch || o->wait == LF_WAIT_RUNNABLE)
		return 0;
	__u64 now = bpf_ktime_get_ns(), since = o->since_ns + (sums->timed_ns - sums->timed_clock);

	if (o->since_ns == SINCE_BEGIN)
		since = settings->from_ns;
	/* Not to the ns the length that it will have: the few that are on the edge have no waker, or one that nobody asks for. */
	if (now > since && weigh_drawn(now - since, l->block_ns, o->point)) {
		struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);

		if (!s)
			return 0;
		take_waker_stack(ctx, s, now);
		if (remember(LF_SLOT_TRACEPOINT))
			o->waker = s->record.stack;
	}
	c->switch_ns += bpf_ktime_get_ns() - now;
	return 0;
}

/*
 * When measuring begins, or goes on after a pause: marks all wanted threads. Those off their CPU are so from now on, for what they wait
 * for now. Runs when on_switch() is attached already; a thread that it has seen is left alone.
 */
SEC("?iter/task")
int mark_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 zero = 0;
	struct lf_off_cpu_settings *settings = bpf_map_lookup_elem(&off_cpu_settings, &zero);

	if (!task || !settings || task->exit_state || !wanted_task(task, settings))
		return 0;
	struct off_cpu *o = bpf_task_storage_get(&off_cpus, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!o || o->stretch == settings->stretch)
		return 0;
	o->stretch = settings->stretch;
	o->run_delay = task->sched_info.run_delay;
	o->wait = wait_of(state_of(task));
	o->since_ns = task->on_cpu ? 0 : SINCE_BEGIN;
	o->waker = 0;
	o->point = 0;
	return 0;
}

/* After the last sample: waits that have not ended. on_switch() does nothing any more. */
SEC("?iter/task")
int end_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 zero = 0;
	struct lf_off_cpu_settings *settings = bpf_map_lookup_elem(&off_cpu_settings, &zero);
	struct lf_off_cpu_sums *sums = bpf_map_lookup_elem(&off_cpu_sums, &zero);
	struct lf_counters *c = own_counters(LF_SLOT_TRACEPOINT);

	if (!task || !settings || !sums || !c)
		return 0;
	struct off_cpu *o = bpf_task_storage_get(&off_cpus, task, NULL, 0);

	/* What began in a stretch before was not watched to its end. */
	if (!o || !o->since_ns || o->stretch != settings->stretch)
		return 0;
	__u64 clock = settings->until_ns - settings->clock_offset;

	if (o->since_ns == SINCE_BEGIN)
		end_wait(task, o, settings->until_ns - settings->from_ns, clock, c, sums);
	else
		end_wait(task, o, clock - o->since_ns, clock, c, sums);
	o->since_ns = 0;
	return 0;
}
