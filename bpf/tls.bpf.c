// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Who sends and receives how much through OpenSSL, and when: SSL_read, SSL_write and their _ex forms. Never what.
 *
 * The programs do not care where they stand: at a function's first byte or at a later instruction before which the arguments are still in
 * their registers; at its return or at an instruction with the value already in its register. So sites can be compared with all else equal.
 */
#include "tls.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define MAX_PIDNS_LEVEL 32 /* include/linux/pid_namespace.h */

#if defined(__TARGET_ARCH_x86)
#define FIRST(regs) ((regs)->di)
#define FOURTH(regs) ((regs)->cx)
#define VALUE(regs) ((regs)->ax)
#elif defined(__TARGET_ARCH_arm64)
#define FIRST(regs) ((regs)->user_regs.regs[0])
#define FOURTH(regs) ((regs)->user_regs.regs[3])
#define VALUE(regs) ((regs)->user_regs.regs[0])
#endif

const volatile struct lf_tls_config config = {};

struct call {
	__u64 entered_ns;
	__u64 ssl;
	__u64 length_at; /* of the _ex forms */
};

/* The call under way of each thread, in its own storage: no lock, no hash. entered_ns is 0 between calls. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lf_tls_counts);
} counts SEC(".maps");

/* Its size is set before load. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

/* The number of a pid in user space's namespace; 0 if it has none there. */
static __always_inline __u32 number_of(struct pid *pid)
{
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level);

	for (__u32 i = 0; i <= MAX_PIDNS_LEVEL && i <= level; i++) {
		struct upid *number = numbers + i * bpf_core_type_size(struct upid);

		if (BPF_CORE_READ(number, ns, ns.inum) == config.pidns_inode)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

/* The current process, in the upper half, and thread as user space knows them. */
static __always_inline __u64 pid_and_tid(void)
{
	struct task_struct *task;

	if (!config.pidns_inode)
		return bpf_get_current_pid_tgid();
	task = (void *)bpf_get_current_task();
	return (__u64)number_of(BPF_CORE_READ(task, group_leader, thread_pid)) << 32 |
	       number_of(BPF_CORE_READ(task, thread_pid));
}

static __always_inline struct lf_tls_counts *counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline int enter(struct pt_regs *regs)
{
	struct lf_tls_counts *count = counters();
	struct call *call =
		bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!count)
		return 0;
	count->entered++;
	if (!call) {
		count->no_room++;
		return 0;
	}
	call->entered_ns = bpf_ktime_get_ns();
	call->ssl = FIRST(regs);
	call->length_at = FOURTH(regs);
	return 0;
}

static __always_inline int leave(struct pt_regs *regs)
{
	struct lf_tls_counts *count = counters();
	struct call *call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL, 0);
	struct lf_tls_event *event;
	__s64 length = (__s32)VALUE(regs);
	__u32 cookie = bpf_get_attach_cookie(regs);
	__u64 pid, entered_ns;

	if (!count)
		return 0;
	if (!call || !call->entered_ns) {
		count->stray++;
		return 0;
	}
	entered_ns = call->entered_ns;
	call->entered_ns = 0;
	count->left++;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count->lost++;
		return 0;
	}
	if ((cookie & LF_TLS_EX) && length > 0 &&
	    bpf_probe_read_user(&length, sizeof(length), (void *)call->length_at))
		length = 0;
	pid = pid_and_tid();
	event->entered_ns = entered_ns;
	event->left_ns = bpf_ktime_get_ns();
	event->ssl = call->ssl;
	event->length = length;
	event->pid = pid >> 32;
	event->tid = pid;
	event->cookie = cookie;
	event->reserved = 0;
	/* User space reads on a clock of its own: no wake-up for each call. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	count->sent++;
	return 0;
}

/* One perf event each, as most tools attach. */
SEC("uprobe")
int enter_one(struct pt_regs *regs)
{
	return enter(regs);
}

SEC("uretprobe")
int leave_one(struct pt_regs *regs)
{
	return leave(regs);
}

/* All functions in one link (Linux 6.6). */
SEC("uprobe.multi")
int enter_multi(struct pt_regs *regs)
{
	return enter(regs);
}

SEC("uprobe.multi")
int leave_multi(struct pt_regs *regs)
{
	return leave(regs);
}

extern bool bpf_session_is_return(void) __ksym __weak;

/* Entry and return in one link (Linux 6.13). */
SEC("uprobe.session")
int session(struct pt_regs *regs)
{
	return bpf_session_is_return() ? leave(regs) : enter(regs);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
