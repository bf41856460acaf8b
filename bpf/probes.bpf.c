// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What a probe does when it fires. One program per body, loaded with whatever type the way of attaching wants: none of them looks at the
 * registers or arguments.
 *
 * A program `on_BODY` counts: gate -> process -> body, and each way out counts exactly one of throttled, filtered, recorded, lost in the
 * row of its CPU and slot; their sum is what fired. `enter_BODY` and `exit_BODY` find the slot by the number of the system call.
 * `bare_BODY` is the body alone, for prices.
 *
 * Compiled three times, since libbpf reads all of the kernel's types (5 ms) if a single load is to be fitted to them: with LF_TYPES for system
 * calls, with LF_NESTED, too, for user space in a pid namespace of its own, and without for all else.
 */
#include "probes.h"
#include <bpf/bpf_helpers.h>
#ifdef LF_TYPES
#include <bpf/bpf_core_read.h>
#endif

#define MAX_PIDNS_LEVEL 32 /* MAX_PID_NS_LEVEL, include/linux/pid_namespace.h */
#define STACK_FRAMES 127
#define USER_STACK (1 << 8) /* BPF_F_USER_STACK */

const volatile struct lf_probe_config config;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set: possible CPUs * (slots + 1) */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_probe_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set: slots */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64); /* struct lf_probe_gate */
} gates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LF_SYSCALLS);
	__type(key, __u32);
	__type(value, __u32);
} entered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LF_SYSCALLS);
	__type(key, __u32);
	__type(value, __u32);
} exited SEC(".maps");

/* One word: struct lf_probe_breaker. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} breaker SEC(".maps");

/* Wakes user space when the breaker opens on a CPU; what it carries is the CPU's number. Full: user space is awake. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} alarms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter_per_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter_shared SEC(".maps");

/* Set. Full: the firing is lost. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct lf_probe_process);
	__type(value, __u64);
} counts_simple SEC(".maps");

struct complex_key {
	__u32 pid;
	__u32 time;
	char comm[16];
};

/* Set. Full: the firing is lost. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct complex_key);
	__type(value, __u64);
} counts_complex SEC(".maps");

/* Set. Full: the firing is lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct stack {
	__u64 frames[STACK_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack);
} stacks SEC(".maps");

/* The current process as user space knows it; 0 if it has no number there. */
static __always_inline __u32 current_pid(void)
{
#ifdef LF_NESTED
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level);

	for (__u32 i = 0; i <= MAX_PIDNS_LEVEL && i <= level; i++) {
		struct upid *number = numbers + i * bpf_core_type_size(struct upid);

		if (BPF_CORE_READ(number, ns, ns.inum) == config.pidns_inode)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
#else
	return bpf_get_current_pid_tgid() >> 32;
#endif
}

static __always_inline void add(__u64 *counter, __u64 n, __u32 flags)
{
	if (flags & LF_PROBE_ATOMIC)
		__sync_fetch_and_add(counter, n);
	else
		*counter += n;
}

/* Adds to a hash map's entry; false if there is no room. */
static __always_inline bool add_to(void *map, const void *key, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(map, key);

	if (!value) {
		if (!bpf_map_update_elem(map, key, &n, BPF_NOEXIST))
			return true;
		value = bpf_map_lookup_elem(map, key); /* made by another CPU meanwhile, or there is no room */
		if (!value)
			return false;
	}
	__sync_fetch_and_add(value, n);
	return true;
}

/* --- bodies: false if there was no room --------------------------------------------------------------------------------------- */

struct firing {
	void *ctx;
	__u32 slot, weight;
	__u32 wakeup_bytes;
};

static __always_inline bool empty(const struct firing *f)
{
	(void)f;
	return true;
}

/* For prices: who is not the process of the configuration leaves. In `on_filter` the filter stands before. */
static __always_inline bool filter(const struct firing *f)
{
	__u32 zero = 0;

	(void)f;
	if (current_pid() == config.pid) {
		__u64 *counter = bpf_map_lookup_elem(&counter_per_cpu, &zero);

		if (counter)
			*counter += 1;
	}
	return true;
}

static __always_inline bool per_cpu_counter(const struct firing *f)
{
	__u32 zero = 0;
	__u64 *counter = bpf_map_lookup_elem(&counter_per_cpu, &zero);

	(void)f;
	if (counter)
		*counter += 1;
	return true;
}

static __always_inline bool shared_counter(const struct firing *f)
{
	__u32 zero = 0;
	__u64 *counter = bpf_map_lookup_elem(&counter_shared, &zero);

	(void)f;
	if (counter)
		__sync_fetch_and_add(counter, 1);
	return true;
}

static __always_inline bool simple(const struct firing *f)
{
	struct lf_probe_process process = { .slot = f->slot, .pid = current_pid() };

	return add_to(&counts_simple, &process, f->weight);
}

static __always_inline bool complex(const struct firing *f)
{
	struct complex_key key = { .pid = current_pid(), .time = bpf_ktime_get_ns() % 1024 };

	bpf_get_current_comm(key.comm, sizeof(key.comm));
	return add_to(&counts_complex, &key, f->weight);
}

static __always_inline bool event(const struct firing *f)
{
	struct lf_probe_event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	__u64 wakeup = BPF_RB_NO_WAKEUP;

	if (!e)
		return false;
	e->time_ns = bpf_ktime_get_ns();
	e->pid = current_pid();
	e->tid = bpf_get_current_pid_tgid();
	e->slot = f->slot;
	e->weight = f->weight;
	e->cpu = bpf_get_smp_processor_id();
	e->reserved = 0;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	e->unused[0] = e->unused[1] = 0;
	if (f->wakeup_bytes && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= f->wakeup_bytes)
		wakeup = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(e, wakeup);
	return true;
}

static __always_inline bool take_stack(const struct firing *f, __u64 which)
{
	__u32 zero = 0;
	struct stack *stack = bpf_map_lookup_elem(&stacks, &zero);

	if (stack)
		bpf_get_stack(f->ctx, stack, sizeof(*stack), which);
	return true;
}

static __always_inline bool user_stack(const struct firing *f)
{
	return take_stack(f, USER_STACK);
}

static __always_inline bool kernel_stack(const struct firing *f)
{
	return take_stack(f, 0);
}

/* --- what every program does -------------------------------------------------------------------------------------------------- */

static __always_inline struct lf_probe_row *row_of(__u32 slot)
{
	__u32 index = bpf_get_smp_processor_id() * (config.slots + 1) + slot;

	return bpf_map_lookup_elem(&rows, &index);
}

typedef bool (*body_function)(const struct firing *);

/*
 * Whether this CPU has used up what it may fire. Two user probes that preempt each other here may lose count of one: the breaker is a
 * bound, not a sum.
 */
static __always_inline bool breaker_is_open(void)
{
	__u32 zero = 0, cpu = bpf_get_smp_processor_id(), index = cpu * (config.slots + 1) + config.slots;
	__u64 *word = bpf_map_lookup_elem(&breaker, &zero);
	struct lf_probe_cpu *own = bpf_map_lookup_elem(&rows, &index);

	if (!word || !own) /* cannot be: for the verifier */
		return false;
	__u64 now = *(volatile __u64 *)word;
	__u32 epoch = now, firings = now >> 32;

	if (!now)
		return false;
	if (own->epoch != epoch) {
		own->epoch = epoch;
		own->fired = 0;
	}
	if (own->fired < firings) {
		own->fired++;
		return false;
	}
	if (own->fired == firings) { /* the first that is too many */
		own->fired++;
		bpf_ringbuf_output(&alarms, &cpu, sizeof(cpu), BPF_RB_FORCE_WAKEUP);
	}
	return true;
}

/* One firing of a slot. Each way out counts once. */
static __always_inline void fire(void *ctx, __u32 slot, __u32 flags, body_function body)
{
	struct lf_probe_row *row = row_of(slot);
	struct firing f = { .ctx = ctx, .slot = slot, .weight = 1, .wakeup_bytes = config.wakeup_bytes };

	if (!row) /* cannot be: for the verifier */
		return;
	if (flags & LF_PROBE_GATE) {
		if (breaker_is_open()) {
			add(&row->cut, 1, flags);
			return;
		}
		__u64 *gate = bpf_map_lookup_elem(&gates, &slot);
		__u64 word = gate ? *(volatile __u64 *)gate : 0;
		__u32 one_in = word, threshold = word >> 32;

		if (one_in > 1) {
			if (bpf_get_prandom_u32() >= threshold) {
				add(&row->throttled, 1, flags);
				return;
			}
			f.weight = one_in;
		}
	}
	if ((flags & LF_PROBE_FILTER) && current_pid() != config.pid) {
		add(&row->filtered, 1, flags);
		return;
	}
	if (!body(&f)) {
		add(&row->lost, 1, flags);
		return;
	}
	add(&row->recorded, 1, flags);
	if (flags & LF_PROBE_GATE)
		add(&row->weighed, f.weight, flags);
}

/* The slot of a program that serves one: a constant that user space writes into the instructions. */
static __always_inline __u32 own_slot(void)
{
	__u64 slot;

	asm volatile("%[slot] = %[placeholder]" : [slot] "=r"(slot) : [placeholder] "i"(LF_PROBE_SLOT));
	return slot;
}

static __always_inline int on(void *ctx, body_function body)
{
	__u32 flags = config.flags;

	fire(ctx, flags & LF_PROBE_COOKIE ? bpf_get_attach_cookie(ctx) : own_slot(), flags, body);
	return 0;
}

#ifdef LF_TYPES
/* --- system calls: raw tracepoints sys_enter(registers, number) and sys_exit(registers, result) ------------------------------- */

#if defined(__TARGET_ARCH_x86)
#define TS_COMPAT 0x0002 /* arch/x86/include/asm/thread_info.h */

struct thread_info___x86 {
	__u32 status;
} __attribute__((preserve_access_index));

struct task_struct___x86 {
	struct thread_info___x86 thread_info;
} __attribute__((preserve_access_index));

struct pt_regs___x86 {
	unsigned long orig_ax;
} __attribute__((preserve_access_index));
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___arm64 {
	__s32 syscallno;
} __attribute__((preserve_access_index));
#endif

/*
 * Whether the call came in by the way of 32-bit programs, whose numbers mean something else; a 64-bit program may come that way, too
 * (int 0x80). Loads through the kernel's types cost one nanosecond, a call of bpf_probe_read_kernel ten.
 */
static __always_inline bool is_compat(__u32 flags)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct___x86 *task;

	if (!(flags & LF_PROBE_COMPAT))
		return false;
	task = (void *)bpf_get_current_task_btf();
	return task->thread_info.status & TS_COMPAT;
#else
	(void)flags;
	return false;
#endif
}

#if defined(__TARGET_ARCH_x86)
#define REGISTERS struct pt_regs___x86
#elif defined(__TARGET_ARCH_arm64)
#define REGISTERS struct pt_regs___arm64
#endif

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

/* The number of the system call that the current task is about to leave. Linux 6.2 has a cast that costs nothing; two calls otherwise. */
static __always_inline __u64 number_left(const __u64 *ctx)
{
	REGISTERS *at;

	if (bpf_ksym_exists(bpf_rdonly_cast))
		at = bpf_rdonly_cast((void *)ctx[0], bpf_core_type_id_kernel(REGISTERS));
	else
		at = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
#if defined(__TARGET_ARCH_x86)
	return at->orig_ax;
#elif defined(__TARGET_ARCH_arm64)
	return (__u32)at->syscallno;
#endif
}

static __always_inline int on_syscall(__u64 *ctx, void *table, __u64 number, body_function body)
{
	__u32 key = number;
	__u32 *found = number < LF_SYSCALLS ? bpf_map_lookup_elem(table, &key) : NULL;

	if (!found || !*found || is_compat(config.flags)) {
		struct lf_probe_cpu *own = (void *)row_of(config.slots);

		if (own)
			own->passed++;
		return 0;
	}
	/* Read again: kept over what stands above it might be spilled in a way that makes the verifier forget its value. */
	fire(ctx, *found - 1, config.flags, body);
	return 0;
}

static __always_inline int on_enter(__u64 *ctx, body_function body)
{
	return on_syscall(ctx, &entered, ctx[1], body);
}

static __always_inline int on_exit(__u64 *ctx, body_function body)
{
	return on_syscall(ctx, &exited, number_left(ctx), body);
}

#define DISPATCHERS(body)                                                                                                          \
	SEC("?raw_tp") int enter_##body(__u64 *ctx)                                                                                \
	{                                                                                                                          \
		return on_enter(ctx, body);                                                                                        \
	}                                                                                                                          \
	SEC("?raw_tp") int exit_##body(__u64 *ctx)                                                                                 \
	{                                                                                                                          \
		return on_exit(ctx, body);                                                                                         \
	}
#else
#define DISPATCHERS(body)
#endif

#define PROGRAMS(body)                                                                                                             \
	DISPATCHERS(body)                                                                                                          \
	SEC("?raw_tp") int on_##body(void *ctx)                                                                                    \
	{                                                                                                                          \
		return on(ctx, body);                                                                                              \
	}                                                                                                                          \
	SEC("?raw_tp") int bare_##body(void *ctx)                                                                                  \
	{                                                                                                                          \
		const struct firing f = { .ctx = ctx, .weight = 1 };                                                               \
                                                                                                                                   \
		body(&f);                                                                                                          \
		return 0;                                                                                                          \
	}

PROGRAMS(empty)
PROGRAMS(filter)
PROGRAMS(per_cpu_counter)
PROGRAMS(shared_counter)
PROGRAMS(simple)
PROGRAMS(complex)
PROGRAMS(event)
PROGRAMS(user_stack)
PROGRAMS(kernel_stack)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
