// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The sampling programs: timer -> filter -> user stack (walk.h) + kernel stack -> counted here or sent.
 *
 * Each way out of on_sample() counts exactly one of recorded, filtered, throttled, lost, no_scratch, no_frames, so that
 * their sum is `fired`. Filtering comes before any stack is walked.
 */
#include "walk.h"

#define STACK_PIECE 4096 /* bytes of stack that are read at once for lf_failed: not across the end of a page, where its mapping may end */
#define SMALL_STACK 8192

/* The registers of the context (user mode) or those that the kernel was entered with, brought into the walk. */
#if defined(__TARGET_ARCH_x86)
#define IN_USER_MODE(regs) (((regs)->cs & 3) == 3)
#define TAKE_REGISTERS(w, READ)                                                                                                   \
	do {                                                                                                                      \
		(w)->ip = READ(ip);                                                                                               \
		(w)->registers[0] = READ(ax);                                                                                     \
		(w)->registers[1] = READ(dx);                                                                                     \
		(w)->registers[2] = READ(cx);                                                                                     \
		(w)->registers[3] = (w)->bx = READ(bx);                                                                           \
		(w)->registers[4] = READ(si);                                                                                     \
		(w)->registers[5] = READ(di);                                                                                     \
		(w)->registers[6] = (w)->fp = READ(bp);                                                                           \
		(w)->registers[7] = (w)->sp = READ(sp);                                                                           \
		(w)->registers[8] = READ(r8);                                                                                     \
		(w)->registers[9] = READ(r9);                                                                                     \
		(w)->registers[10] = READ(r10);                                                                                   \
		(w)->registers[11] = READ(r11);                                                                                   \
		(w)->registers[12] = READ(r12);                                                                                   \
		(w)->registers[13] = READ(r13);                                                                                   \
		(w)->registers[14] = READ(r14);                                                                                   \
		(w)->registers[15] = READ(r15);                                                                                   \
	} while (0)
#elif defined(__TARGET_ARCH_arm64)
#define IN_USER_MODE(regs) (((regs)->pstate & 0xf) == 0)
#define TAKE_REGISTERS(w, READ)                                                                                                   \
	do {                                                                                                                      \
		(w)->ip = READ(pc);                                                                                               \
		(w)->fp = READ(regs[29]);                                                                                         \
		(w)->registers[0] = READ(regs[30]);                                                                               \
		(w)->registers[1] = READ(regs[0]);                                                                                \
		(w)->sp = READ(sp);                                                                                               \
	} while (0)
#endif

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

/* Takes kernel address number `index` into the hash. As a plain loop it tripled the time to load. */
static long mix_address(__u64 index, void *slot)
{
	struct scratch *s = scratch_of(*(__u32 *)slot);

	if (!s || index >= LF_MAX_KERNEL_FRAMES) /* cannot be: for the verifier */
		return 1;
	s->walk.hash = mix(s->walk.hash, s->words[index]);
	return 0;
}

static __always_inline __u64 wakeup_flag(void)
{
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) >= config.wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/*
 * An interpreter's frames get their names from the memory of the process, which may be gone soon: the younger it is, the sooner user
 * space has to look. In the life of a process that are prompt * ln(age at its end / age at its first stack) times at most.
 */
static __always_inline __u64 wakeup_flag_for(struct scratch *s)
{
	__u32 zero = 0;

	if (s->walk.interpreter_frame) {
		struct lf_live *now = bpf_map_lookup_elem(&live, &zero);
		__u32 prompt = now ? now->prompt : 0;
		__u64 age_ns = bpf_ktime_get_boot_ns() - s->record.process_start_ns;

		if (prompt && s->record.time_ns - s->prompted_ns >= age_ns / prompt) {
			s->prompted_ns = s->record.time_ns;
			return BPF_RB_FORCE_WAKEUP;
		}
	}
	return wakeup_flag();
}

/* Sends the record; false if the ring is full. */
static __always_inline bool send(struct scratch *s, struct lf_counters *c, __u64 wakeup)
{
	__u32 words = s->record.kernel_frames + s->record.user_words, segments = s->record.segments;

	if (words > MAX_WORDS || segments > LF_MAX_SEGMENTS) /* cannot be: for the verifier */
		return false;
	bpf_probe_read_kernel(&s->words[words], segments * sizeof(struct lf_segment), s->segments);

	__u64 bytes = sizeof(s->record) + words * sizeof(__u64) + segments * sizeof(struct lf_segment);

	if (bytes > sizeof(s->record) + sizeof(s->words)) /* cannot be: for the verifier */
		return false;
	if (bpf_ringbuf_output(&records, s, bytes, wakeup))
		return false;
	c->sent++;
	c->sent_bytes += bytes;
	return true;
}

/* What the walk began with, with at most `room` bytes of its stack, a constant. */
static __always_inline int send_start_with(struct scratch *s, const __u32 room)
{
	struct lf_failed *failed = bpf_ringbuf_reserve(&records, sizeof(*failed) + room, 0);
	__u32 at = 0;

	if (!failed)
		return 0;
	failed->entry = LF_ENTRY_FAILED;
	failed->stack = s->record.stack;
	failed->ip = s->start.ip;
	failed->sp = s->start.sp;
	failed->fp = s->start.fp;
	for (int i = 0; i < WALK_REGISTERS; i++)
		failed->registers[i] = s->start.registers[i];
	for (__u32 i = 0; i < room / STACK_PIECE; i++) {
		__u32 bytes = STACK_PIECE - ((s->start.sp + at) & (STACK_PIECE - 1));

		if (at > room - STACK_PIECE || bytes > STACK_PIECE)
			break;
		if (bpf_probe_read_user(failed->bytes + at, bytes, (void *)(s->start.sp + at)))
			break;
		at += bytes;
	}
	failed->stack_bytes = at;
	bpf_ringbuf_submit(failed, BPF_RB_NO_WAKEUP);
	return 1;
}

/*
 * The same for user space to repeat the walk, or to end it; `bytes` of stack, see stack_bytes(). 1: sent. A function of its own for the
 * verifier.
 */
__noinline int send_start_of(__u32 slot, __u32 bytes)
{
	struct scratch *s = scratch_of(slot);

	/* Another task's memory is read in another way: walks of waiting threads are not sent. */
	if (!s || (s->start.flags & WALK_REMOTE))
		return 0;
	/* These are large: the rest of the ring is for stacks. */
	if (bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) >= 3ULL * config.wakeup_bytes)
		return 0;
	if (bytes <= SMALL_STACK)
		return send_start_with(s, SMALL_STACK);
	if (bytes <= LF_FAILED_STACK_BYTES / 4)
		return send_start_with(s, LF_FAILED_STACK_BYTES / 4);
	if (bytes <= LF_FAILED_STACK_BYTES / 2)
		return send_start_with(s, LF_FAILED_STACK_BYTES / 2);
	return send_start_with(s, LF_FAILED_STACK_BYTES);
}

/* Side by side: all functions that are being called may have 512 bytes of stack together. */
static __always_inline bool send_start(__u32 slot)
{
	return send_start_of(slot, stack_bytes(slot));
}

/* Whether a walk that ended so is sent, to be kept. */
static __always_inline bool is_saved(__u32 outcome)
{
	return config.save_failed && (outcome > LF_TRUNCATED || config.save_failed > 1);
}

/* Whether a walk that ended so is ended by user space, when the rows are there. */
static __always_inline bool is_deferred(__u32 outcome)
{
	__u32 zero = 0;
	struct lf_live *now;

	if (outcome != LF_NO_ROWS_YET)
		return false;
	now = bpf_map_lookup_elem(&live, &zero);
	return now && now->deferred;
}

/* Who it is. */
static __always_inline void describe(struct scratch *s, struct task_struct *task, __u32 pid, __u32 kind, __u64 now)
{
	struct lf_record *r = &s->record;
	struct walk *w = &s->walk;

	r->entry = LF_ENTRY_STACK;
	r->kind = kind;
	r->time_ns = now;
	r->pid = pid;
	r->tid = tid_of(task);
	r->process_start_ns = task->group_leader->start_boottime;
	r->thread_start_ns = task->start_boottime;
	r->exec_id = task->self_exec_id;
	BPF_CORE_READ_INTO(&r->comm, task, comm);
	r->outcome = LF_COMPLETE;
	r->wait = LF_WAIT_NONE;
	r->waker = 0;
	r->interpreter_outcome = LF_INTERPRETER_FINE;
	r->kernel_frames = 0;
	r->user_words = 0;
	r->segments = 0;

	w->task = (__u64)task;
	w->mm = (__u64)task->mm;
	w->pid = pid;
	w->now_ns = now;
	w->segments = 0;
	w->segment = 0;
	w->at = 0;
	w->flags = WALK_EXACT | WALK_ALL_REGISTERS | WALK_FP_KNOWN | WALK_BX_KNOWN;
	w->outcome = LF_TRUNCATED;
	w->interpreter_outcome = LF_INTERPRETER_FINE;
	w->interpreter_frame = 0;

	__u64 hash = mix(mix(r->thread_start_ns, task->pid), r->exec_id);

	w->hash = mix(mix(mix(hash, ((__u64 *)r->comm)[0]), ((__u64 *)r->comm)[1]), kind);
}

/* Takes `k` kernel addresses that lie in scratch::words. */
static __always_inline void take_kernel_frames(__u32 slot, struct scratch *s, __u32 k)
{
	if (k > LF_MAX_KERNEL_FRAMES) /* cannot be: for the verifier */
		k = LF_MAX_KERNEL_FRAMES;
	if (config.use_loop)
		bpf_loop(k, mix_address, &slot, 0);
	else
		for (__u32 i = 0; i < LF_MAX_KERNEL_FRAMES && i < k; i++)
			s->walk.hash = mix(s->walk.hash, s->words[i]);
	s->record.kernel_frames = k;
	s->walk.at = k;
}

/* Whether the task is executing a new program: from some point on its registers are the old program's, its memory the new one's. */
static __always_inline bool in_execve(struct task_struct *task)
{
	return bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
}

/* Walks the user stack from the registers in scratch::walk, behind the kernel's frames. */
static __always_inline void take_user_frames(__u32 slot, struct scratch *s)
{
	struct walk *w = &s->walk;
	__u32 zero = 0, k = s->record.kernel_frames, deepest = LF_MAX_USER_FRAMES;
	struct lf_live *now = bpf_map_lookup_elem(&live, &zero);
	struct mm_struct *mm = (void *)w->mm;
	struct task_struct *task = (void *)w->task;
	__u64 hash;

	/* A thread on its way out has no user part any more: its stack may be another thread's already. */
	if (BPF_CORE_READ(task, flags) & PF_EXITING)
		return;
	w->flags |= WALK_USER_PART;
	if (now && now->user_frames_max && now->user_frames_max < deepest)
		deepest = now->user_frames_max;
	w->limit = k + deepest;
	hash = w->hash;
	w->searched = 0;
	w->cached = 0;
	w->vdso = (__u64)BPF_CORE_READ(mm, context.vdso);
	reuse_segments(slot);
	s->start = *w;
	walk_stack(slot);
	keep_segments(slot);
	if (w->outcome > LF_TRUNCATED && in_execve((void *)w->task)) {
		w->at = k;
		w->segments = 0;
		w->hash = hash;
		w->outcome = LF_COMPLETE;
		w->flags &= ~WALK_USER_PART;
	}
	s->record.user_words = w->at - k;
	s->record.segments = w->segments;
	s->record.outcome = w->outcome;
	s->record.interpreter_outcome = w->interpreter_outcome;
}

/* lf_record::stack of the stack in scratch. */
static __always_inline __u64 key_of(struct scratch *s)
{
	struct lf_record *r = &s->record;

	return mix(mix(mix(s->walk.hash, r->outcome), r->interpreter_outcome), r->wait ^ r->waker);
}

/* Sends the stack in scratch, once, as none: others name it. 1: user space has it or will have. */
__noinline int remember(__u32 slot)
{
	struct scratch *s = scratch_of(slot);
	struct lf_counters *c = own_counters(slot);
	struct lf_count none = {};

	if (!s || !c)
		return 0;
	struct lf_record *r = &s->record;

	r->stack = key_of(s);
	r->count = 0;
	r->weight_ns = 0;
	if (config.count_in_kernel && bpf_map_update_elem(&counts, &r->stack, &none, BPF_NOEXIST))
		return bpf_map_lookup_elem(&counts, &r->stack) != NULL;
	if (send(s, c, wakeup_flag()))
		return 1;
	if (config.count_in_kernel)
		bpf_map_delete_elem(&counts, &r->stack);
	return 0;
}

/*
 * Counts the stack in scratch, or sends it, as `weight_ns`. Says which in the counters. A function of its own: what it needs of the stack
 * is not there while the walk needs it.
 */
__noinline int record(__u32 slot, __u64 weight_ns)
{
	struct scratch *s = scratch_of(slot);
	struct lf_counters *c = own_counters(slot);
	__u64 hash;

	if (!s || !c)
		return 0;
	struct lf_record *r = &s->record;

	/* A thread on its way out or into another program, without kernel frames: its time is recorded all the same. */
	if (!r->kernel_frames && !r->user_words && (s->walk.flags & WALK_USER_PART)) {
		c->no_frames++;
		return 0;
	}
	c->user_frames += r->user_words;
	if (r->user_words) {
		c->rules_searched += s->walk.searched;
		c->rules_cached += s->walk.cached;
	}
	if (r->outcome == LF_TRUNCATED)
		c->truncated++;
	hash = key_of(s);
	r->stack = hash;
	r->count = 1;
	r->weight_ns = weight_ns;
	/* Stacks that are equal so far may differ in what is missing: each is sent. At once, while its process can be asked. */
	if (is_deferred(r->outcome) && send_start(slot)) {
		if (send(s, c, BPF_RB_FORCE_WAKEUP))
			c->recorded++;
		else
			c->lost++;
		return 0;
	}
	if (config.count_in_kernel) {
		struct lf_count *count = bpf_map_lookup_elem(&counts, &hash);

		if (count) {
			/* Atomic although a thread runs on one CPU at a time: another with the same hash may not. */
			__sync_fetch_and_add(&count->samples, 1);
			__sync_fetch_and_add(&count->weight_ns, weight_ns);
			c->recorded++;
			return 0;
		}
		/*
		 * A new stack. It is entered before it is sent (the other order could send it twice), as none; the sample counts
		 * once it is on its way. If the ring is full the entry goes again: the next such sample tries anew.
		 */
		struct lf_count none = {};

		if (bpf_map_update_elem(&counts, &hash, &none, BPF_NOEXIST))
			c->uncounted++;
		else {
			r->count = 0;
			r->weight_ns = 0;
			if (is_saved(r->outcome))
				send_start(slot);
			if (!send(s, c, wakeup_flag_for(s))) {
				bpf_map_delete_elem(&counts, &hash);
				c->lost++;
				return 0;
			}
			count = bpf_map_lookup_elem(&counts, &hash);
			if (count) {
				__sync_fetch_and_add(&count->samples, 1);
				__sync_fetch_and_add(&count->weight_ns, weight_ns);
			}
			c->recorded++;
			return 0;
		}
	}
	if (is_saved(r->outcome))
		send_start(slot);
	if (send(s, c, wakeup_flag_for(s)))
		c->recorded++;
	else
		c->lost++;
	return 0;
}

static __always_inline void sample(struct bpf_perf_event_data *ctx, struct lf_counters *c, __u64 now, __u64 weight_ns)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 pid = pid_of(task);

	if (!wanted(task, pid)) {
		c->filtered++;
		return;
	}
	struct scratch *s = scratch_of(LF_SLOT_EVENT);
	if (!s) {
		c->no_scratch++;
		return;
	}
	describe(s, task, pid, LF_ON_CPU, now);

	bool user_mode = IN_USER_MODE(ctx);

	if (!user_mode && config.kernel_frames) {
		long bytes = bpf_get_stack(ctx, s->words, LF_MAX_KERNEL_FRAMES * sizeof(__u64), 0);

		take_kernel_frames(LF_SLOT_EVENT, s, bytes > 0 ? (__u32)bytes / sizeof(__u64) : 0);
	}
	if (user_mode) {
#define FROM_CONTEXT(field) ctx->field
		TAKE_REGISTERS(&s->walk, FROM_CONTEXT);
		take_user_frames(LF_SLOT_EVENT, s);
	} else if (s->walk.mm) { /* neither a kernel thread nor one that has given up its memory on its way out */
#if defined(__TARGET_ARCH_x86)
		struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
#define FROM_KERNEL_STACK(field) BPF_CORE_READ(regs, field)
#else
		struct user_pt_regs *regs = (void *)bpf_task_pt_regs(task);
#define FROM_KERNEL_STACK(field) BPF_CORE_READ(regs, field)
#endif
		TAKE_REGISTERS(&s->walk, FROM_KERNEL_STACK);
		take_user_frames(LF_SLOT_EVENT, s);
	}
	record(LF_SLOT_EVENT, weight_ns);
}

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	struct lf_counters *c = own_counters(LF_SLOT_EVENT);

	if (!c) /* cannot be: there is a row for every possible CPU */
		return 0;
	__u64 now = bpf_ktime_get_ns(), recorded = c->recorded;
	__u32 zero = 0;
	struct lf_live *l = bpf_map_lookup_elem(&live, &zero);
	__u64 weight_ns = l ? l->period_ns : 0;

	/*
	 * Where the rate moves, a sample stands for the time since the last firing on this CPU, wanted or not. The event itself cannot
	 * be asked: after its period was changed it goes on to tell the old one.
	 */
	if (config.rate_moves && c->last_fired_ns)
		weight_ns = now - c->last_fired_ns;
	c->last_fired_ns = now;
	c->fired++;
	sample(ctx, c, now, weight_ns);
	book_run(c, now, recorded);
	return 0;
}

/* Calibration: what an interrupt with an empty program costs. */
SEC("perf_event")
int on_nothing(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	return 0;
}

/* A process may have 100,000 mappings; what lies behind so many of them is announced when a stack meets it. */
#define MAPPINGS_LOOKED_AT 4096

/* Tells all executable mappings of a process, and announces their files that are new: run by user space, not by an event. */
SEC("iter/task_vma")
int announce_mappings(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct scratch *s = scratch_of(LF_SLOT_ITERATOR);

	if (ctx->meta->seq_num > MAPPINGS_LOOKED_AT)
		return 1; /* ends the read with EAGAIN */
	if (!task || !vma || !s || !(BPF_CORE_READ(vma, vm_flags) & VM_EXEC))
		return 0;
	s->walk.now_ns = bpf_ktime_get_ns();
	s->walk.vdso = (__u64)BPF_CORE_READ(task, mm, context.vdso);
	s->walk.pid = pid_of(task);
	enter_segment(LF_SLOT_ITERATOR, s, vma, 0);
	bpf_seq_write(ctx->meta->seq, &s->segments[0], sizeof(s->segments[0]));
	return 0;
}

/* LF_TARGET_PROCESSES: children of wanted processes are wanted. */
SEC("raw_tp/sched_process_fork")
int on_fork(__u64 *args)
{
	__u64 start = bpf_ktime_get_ns();
	struct lf_counters *c = own_counters(LF_SLOT_TRACEPOINT);
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	__u32 parent_pid = pid_of(parent), child_pid = pid_of(child), one = 1;

	if (!c)
		return 0;
	if (parent_pid != child_pid && parent_pid && bpf_map_lookup_elem(&targets, &parent_pid) &&
	    bpf_map_update_elem(&targets, &child_pid, &one, BPF_ANY))
		__sync_fetch_and_add(&c->unfollowed, 1);
	__sync_fetch_and_add(&c->follow_events, 1);
	__sync_fetch_and_add(&c->follow_ns, bpf_ktime_get_ns() - start);
	return 0;
}

/* LF_TARGET_PROCESSES: a pid whose last thread is gone may be used again by a process that is not wanted. */
SEC("raw_tp/sched_process_exit")
int on_exit(__u64 *args)
{
	__u64 start = bpf_ktime_get_ns();
	struct lf_counters *c = own_counters(LF_SLOT_TRACEPOINT);
	struct task_struct *task = (void *)args[0];
	__u32 pid = pid_of(task);

	if (!c)
		return 0;
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&targets, &pid);
	__sync_fetch_and_add(&c->follow_events, 1);
	__sync_fetch_and_add(&c->follow_ns, bpf_ktime_get_ns() - start);
	return 0;
}

#include "offcpu.h"
#include "tick.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
