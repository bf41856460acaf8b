/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The tick clock: samples taken when the scheduler's tick fires anyway (tracepoint hrtimer_expire_entry), a random part of them. No
 * interrupt is added; a tick that is not kept costs a comparison and a random number. Each tick stands for its period of the CPU's
 * time, each kept tick for that divided by the share that is kept; the choice is independent of all else, so sums are unbiased, but
 * for programs that themselves march in step with the tick. Those are what the cross-check is for: now and then the timer fires
 * beside the tick, and both count where they hit.
 */
#pragma once
#include "walk.h"

#define CHECK_BUCKETS 256

/* Hits by place while the cross-check runs. */
struct clock_check {
	__u64 ticks[CHECK_BUCKETS];
	__u64 timer[CHECK_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock_check);
} clock_checks SEC(".maps");

struct lf_tick_settings {
	__u32 checking; /* 1: both clocks count their hits in clock_checks */
	__u32 counting; /* 1: no samples; what each would cost before its stack is walked goes into the next two */
	__u64 counted;
	__u64 counted_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_tick_settings);
} tick_settings SEC(".maps");

/* The layout of what is on the kernel's stack: pt_regs, as uapi has it. */
#if defined(__TARGET_ARCH_x86)
#define PT_REGS_BYTES (21 * 8)
#define INSTRUCTION(regs) ((regs)->ip)
#elif defined(__TARGET_ARCH_arm64)
#define PT_REGS_BYTES (34 * 8)
#define INSTRUCTION(regs) ((regs)->pc)
#endif

/*
 * The registers that the current interrupt has found (include/asm-generic/irq_regs.h), into scratch::buffer; NULL if they cannot be
 * read. A variable of each CPU is asked for by its distance from another one, the run queue, to which each task has a pointer: the
 * kernel resolves such a variable for a program (__ksym) only with CONFIG_KALLSYMS_ALL.
 */
static __always_inline struct bpf_perf_event_data *interrupted_registers(struct task_struct *task, struct scratch *s)
{
	struct bpf_perf_event_data *found = (void *)s->buffer;
	void *regs;

	_Static_assert(sizeof(*found) <= sizeof(s->buffer), "the registers lie there");
	if (!bpf_core_field_exists(task->se.cfs_rq->rq))
		return NULL;
	void *rq = task->se.cfs_rq->rq;

	if (bpf_probe_read_kernel(&regs, sizeof(regs), rq + config.irq_regs) || !regs)
		return NULL;
	return bpf_probe_read_kernel(found, PT_REGS_BYTES, regs) ? NULL : found;
}

/* Which bucket a hit counts in: process and 256 bytes of code. */
static __always_inline __u32 check_bucket(__u64 ip)
{
	return mix(mix(0, bpf_get_current_pid_tgid() >> 32), ip >> 8) % CHECK_BUCKETS;
}

/* Index of the frame that the interrupt hit among the first words: those before it are the interrupt's own. 32: it is not there. */
__noinline int interrupted_frame(__u64 ip)
{
	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);
	int at;

	if (!s)
		return 32;
	for (at = 0; at < 32; at++)
		if (s->words[at] == ip)
			break;
	return at;
}

/* The kernel stack below the interrupt. */
static __always_inline void take_interrupted_frames(void *ctx, struct scratch *s, __u64 ip)
{
	long bytes = bpf_get_stack(ctx, s->words, LF_MAX_KERNEL_FRAMES * sizeof(__u64), 0);
	__u32 frames = bytes > 0 ? (__u32)bytes / sizeof(__u64) : 0, at = interrupted_frame(ip);

	frames = at < frames && at < 32 ? frames - at : 0;
	__u64 size = frames * sizeof(__u64);

	/* In two steps, or the compiler compares size - 1, which older verifiers do not understand. */
	if (size > LF_MAX_KERNEL_FRAMES * sizeof(__u64))
		size = 0;
	barrier_var(size);
	if (size)
		bpf_probe_read_kernel(s->words, size, &s->words[at & 31]);
	else { /* the kernel could not look through the interrupt: its place is known all the same */
		s->words[0] = ip;
		frames = 1;
	}
	take_kernel_frames(LF_SLOT_TRACEPOINT, s, frames);
}

static __always_inline void sample_tick(void *ctx, struct lf_counters *c, __u64 weight_ns, __u64 now)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 pid = config.pidns_inode ? pid_of(task) : (__u32)task->tgid;

	if (!wanted(task, pid)) {
		c->filtered++;
		return;
	}
	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);

	if (!s) {
		c->no_scratch++;
		return;
	}
	struct bpf_perf_event_data *found = interrupted_registers(task, s);

	if (!found) {
		c->no_frames++;
		return;
	}
	describe(s, task, pid, LF_ON_CPU, now);
	if (IN_USER_MODE(found)) {
#define FROM_INTERRUPT(field) found->field
		TAKE_REGISTERS(&s->walk, FROM_INTERRUPT);
		take_user_frames(LF_SLOT_TRACEPOINT, s);
	} else {
		if (config.kernel_frames)
			take_interrupted_frames(ctx, s, INSTRUCTION(found));
		if (s->walk.mm) {
#if defined(__TARGET_ARCH_x86)
			struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
#else
			struct user_pt_regs *regs = (void *)bpf_task_pt_regs(task);
#endif
#define FROM_ENTRY(field) regs->field
			TAKE_REGISTERS(&s->walk, FROM_ENTRY);
			take_user_frames(LF_SLOT_TRACEPOINT, s);
		}
	}
	record(LF_SLOT_TRACEPOINT, weight_ns);
}

/* Calibration: all of a sample but its stack. */
static __always_inline void price_tick(struct lf_tick_settings *settings)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);
	__u64 now = bpf_ktime_get_ns();

	if (!s || !task->pid || !interrupted_registers(task, s))
		return;
	describe(s, task, pid_of(task), LF_ON_CPU, now);
	__sync_fetch_and_add(&settings->counted, 1);
	__sync_fetch_and_add(&settings->counted_ns, bpf_ktime_get_ns() - now);
}

static __always_inline void count_tick(void)
{
	__u32 zero = 0;
	struct clock_check *check = bpf_map_lookup_elem(&clock_checks, &zero);
	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);

	if (!check || !s || !(bpf_get_current_pid_tgid() >> 32))
		return;
	struct bpf_perf_event_data *found = interrupted_registers((void *)bpf_get_current_task_btf(), s);

	if (found)
		check->ticks[check_bucket(INSTRUCTION(found))]++;
}

SEC("?tp_btf/hrtimer_expire_entry")
int on_tick(__u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	__u32 zero = 0;

	if ((__u64)timer->function != config.tick_function)
		return 0;
	struct lf_live *l = bpf_map_lookup_elem(&live, &zero);
	struct lf_tick_settings *settings = bpf_map_lookup_elem(&tick_settings, &zero);
	struct lf_counters *c = own_counters(LF_SLOT_TRACEPOINT);

	if (!l || !settings || !c)
		return 0;
	__u64 weight_ns = l->period_ns; /* of the tick */
	__u32 keep = l->tick_keep;

	if (settings->checking)
		count_tick();
	if (settings->counting) {
		price_tick(settings);
		return 0;
	}
	if (keep && bpf_get_prandom_u32() >= keep) {
		c->ticks_skipped++;
		return 0;
	}
	if (keep)
		weight_ns = (weight_ns << 32) / keep;
	__u64 now = bpf_ktime_get_ns(), recorded = c->recorded;

	c->fired++;
	sample_tick(ctx, c, weight_ns, now);
	book_run(c, now, recorded);
	return 0;
}

/* The cross-check's timer: counts where it hits, no more. */
SEC("?perf_event")
int on_check(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct clock_check *check = bpf_map_lookup_elem(&clock_checks, &zero);

	if (check && bpf_get_current_pid_tgid() >> 32)
		check->timer[check_bucket(INSTRUCTION(ctx))]++;
	return 0;
}
