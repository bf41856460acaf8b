/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The walk through a user stack: for each frame the mapping of its code, the row for it, the rule of the row, the caller.
 * The same walk in user space, over frozen input: crates/unwind/src/walk.rs. Both follow the same rules in the same order.
 */
#pragma once
#include "mapping.h"
#include "remote.h"

#if defined(__TARGET_ARCH_x86)
/* rt_sigframe at the return from a handler: arch/x86/include/uapi/asm/sigcontext.h behind uc_flags, uc_link and uc_stack. */
#define SIGCONTEXT_AT 40
#define SIGCONTEXT_WORDS 17 /* r8..r15 di si bp bx dx ax cx sp ip */
#define RESULT_REGISTER 0   /* in walk::registers: what a system call returns */
#elif defined(__TARGET_ARCH_arm64)
/* rt_sigframe: siginfo (128), ucontext up to uc_mcontext (176), fault_address (8): arch/arm64/include/uapi/asm/sigcontext.h. */
#define SIGCONTEXT_AT 312
#define SIGCONTEXT_WORDS 33 /* x0..x30 sp pc */
#define RESULT_REGISTER 1
#endif

/* Where the kernel sees the byte at `address` of the walk's process; 0: nowhere. A function of its own for the verifier. */
__noinline __u64 remote_address(__u64 address)
{
	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);
	const struct paging paging = { config.page_offset, config.physical_mask, config.levels };

	if (!s)
		return 0;
	struct walk *w = &s->walk;
	__u64 inside = address & (REMOTE_PAGE_BYTES - 1);

	if (address - inside != w->remote_page || !w->remote_at) {
		w->remote_page = address - inside;
		w->remote_at = kernel_address((void *)w->mm, address - inside, &paging);
	}
	return w->remote_at ? w->remote_at + inside : 0;
}

/* Brings `bytes` bytes that lie across the end of a page into scratch::bounce. */
__noinline int bounce_remote(__u64 address, __u64 bytes)
{
	struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);
	__u64 first = REMOTE_PAGE_BYTES - (address & (REMOTE_PAGE_BYTES - 1));

	if (!s || bytes > REMOTE_READ_MAX || first > bytes)
		return -1;
	__u64 from = remote_address(address);

	if (!from || bpf_probe_read_kernel(s->bounce, first, (void *)from))
		return -1;
	from = remote_address(address + first);
	bytes -= first;
	if (!from || bytes > REMOTE_READ_MAX)
		return -1;
	return bpf_probe_read_kernel(s->bounce + first, bytes, (void *)from);
}

/* The same memory through the page tables of a task that does not run. At most REMOTE_READ_MAX bytes. */
static __always_inline long read_remote(void *to, __u32 bytes, __u64 address)
{
	if ((address & (REMOTE_PAGE_BYTES - 1)) + bytes > REMOTE_PAGE_BYTES) {
		struct scratch *s = scratch_of(LF_SLOT_TRACEPOINT);

		if (!s || bounce_remote(address, bytes))
			return -1;
		return bpf_probe_read_kernel(to, bytes, s->bounce);
	}
	__u64 from = remote_address(address);

	return from ? bpf_probe_read_kernel(to, bytes, (void *)from) : -1;
}

/* Reads memory of the task whose stack it is. 0 if that worked. */
static __always_inline long read_user(struct walk *w, void *to, __u32 bytes, __u64 address)
{
	if (config.levels && (w->flags & WALK_REMOTE))
		return read_remote(to, bytes, address);
	return bpf_probe_read_user(to, bytes, (void *)address);
}

/* Adds one word to the stack; false if there is no room. */
static __always_inline bool push_word(struct scratch *s, __u64 word)
{
	__u32 at = s->walk.at;

	if (at >= s->walk.limit || at >= MAX_WORDS)
		return false;
	s->words[at] = word;
	s->walk.hash = mix(s->walk.hash, word);
	s->walk.at = at + 1;
	return true;
}

/* Adds a frame of an interpreter: two words or none. */
static __always_inline bool push_pair(struct scratch *s, __u32 kind, __u64 address, __u64 position)
{
	if (s->walk.at + 2 > s->walk.limit)
		return false;
	return push_word(s, (__u64)kind << LF_FRAME_KIND_SHIFT | (address & LF_FRAME_ADDRESS)) && push_word(s, position);
}

static __always_inline int end_walk(struct walk *w, __u32 outcome)
{
	w->outcome = outcome;
	return 1;
}

/* 1 if a < b, else 0, without a branch, and so that the compiler does not make one of it. Both below 2^31. */
static __always_inline __u64 less(__u64 a, __u64 b)
{
	__u64 difference = a - b;

	barrier_var(difference);
	difference >>= 63;
	barrier_var(difference);
	return difference;
}

/* One step of a search for the last row that begins at or below `wanted`: goes on by `step` if that is not too far. */
#define SEARCH_STEP(step)                                                                                                         \
	do {                                                                                                                      \
		__u64 inside = less(at + (step), end);                                                                            \
		__u64 row = bank->rows[(at + (step) * inside) & (LF_BANK_ROWS - 1)];                                            \
		at += (step) * (inside & less(row >> 16, wanted + 1));                                                              \
	} while (0)

/*
 * The rule of the last of `count` rows from `first` on that begins at or below `wanted`; 0 if there is none. Without branches: with
 * them the verifier follows every path through the search and gives up.
 */
static __always_inline __u32 search_rows(struct bank *bank, __u64 first, __u64 count, __u64 wanted)
{
	__u64 at = first, end = first + count;

	if (count > 1024) {
		SEARCH_STEP(32768);
		SEARCH_STEP(16384);
		SEARCH_STEP(8192);
		SEARCH_STEP(4096);
		SEARCH_STEP(2048);
		SEARCH_STEP(1024);
	}
	SEARCH_STEP(512);
	SEARCH_STEP(256);
	SEARCH_STEP(128);
	SEARCH_STEP(64);
	SEARCH_STEP(32);
	SEARCH_STEP(16);
	SEARCH_STEP(8);
	SEARCH_STEP(4);
	SEARCH_STEP(2);
	SEARCH_STEP(1);

	__u32 row = bank->rows[at & (LF_BANK_ROWS - 1)];

	return row >> 16 <= wanted ? row & 0xffff : 0;
}

/* Number of the rule for a file offset in segment `at`, by search; kept in the cache. 0 (LF_CFA_NONE): there is none. */
__noinline int find_rule(__u32 slot, __u32 at, __u64 offset)
{
	struct scratch *s = scratch_of(slot);
	__u32 zero = 0;

	if (!s)
		return 0;
	struct segment_table *table = &s->tables[at & (LF_MAX_SEGMENTS - 1)];
	__u32 page = (offset >> LF_PAGE_SHIFT) - table->page_base;

	if (offset >> 32 || page >= table->pages)
		return 0;
	page += table->first_page;

	struct lf_page *p = bpf_map_lookup_elem(&pages, &page);
	if (!p)
		return 0;
	__u32 bank_number = p->first_row >> 16;
	void *inner = bpf_map_lookup_elem(&banks, &bank_number);
	if (!inner)
		return 0;
	struct bank *bank = bpf_map_lookup_elem(inner, &zero);
	if (!bank || !p->rows)
		return 0;
	return search_rows(bank, p->first_row & (LF_BANK_ROWS - 1), p->rows, offset & 0xffff);
}

/* Number of the rule for the code at `lookup` in segment `at`, whose object is ready. */
static __always_inline __u32 rule_number(__u32 slot, struct scratch *s, __u32 at, __u64 lookup)
{
	struct lf_segment *segment = &s->segments[at & (LF_MAX_SEGMENTS - 1)];
	__u64 offset = lookup - segment->start + segment->file_offset;
	__u64 key = (__u64)segment->object << 32 | (__u32)offset;
	__u32 at_entry = (key * 0x9e3779b97f4a7c15ULL) >> (64 - CACHE_BITS), number;

	if (s->cache.entries[at_entry] >> 16 == key) {
		s->walk.cached++;
		return s->cache.entries[at_entry] & 0xffff;
	}
	s->walk.searched++;
	number = find_rule(slot, at, offset);
	if (!(key >> 48)) /* there are more numbers than have room */
		s->cache.entries[at_entry] = key << 16 | (number & 0xffff);
	return number;
}

/* The frame of a signal handler: everything that was interrupted is on the stack. */
static __always_inline int leave_signal(struct walk *w)
{
	/* In scratch memory: all functions that are being called may have 512 bytes of stack together. */
	struct scratch *s = (void *)w - __builtin_offsetof(struct scratch, walk);
	__u64 *saved = (void *)s->buffer;

	if (read_user(w, saved, SIGCONTEXT_WORDS * sizeof(*saved), w->sp + SIGCONTEXT_AT))
		return end_walk(w, LF_UNREADABLE);
#if defined(__TARGET_ARCH_x86)
	/* rax rdx rcx rbx rsi rdi rbp rsp: DWARF's first eight, System V ABI figure 3.36. */
	w->registers[0] = saved[13];
	w->registers[1] = saved[12];
	w->registers[2] = saved[14];
	w->registers[3] = w->bx = saved[11];
	w->registers[4] = saved[9];
	w->registers[5] = saved[8];
	w->registers[6] = w->fp = saved[10];
	w->registers[7] = w->sp = saved[15];
	for (int i = 0; i < 8; i++)
		w->registers[8 + i] = saved[i];
	w->ip = saved[16];
#elif defined(__TARGET_ARCH_arm64)
	w->fp = saved[29];
	w->registers[0] = saved[30];
	w->registers[1] = saved[0];
	w->sp = saved[31];
	w->ip = saved[32];
#endif
	w->flags = (w->flags & ~WALK_GUESSED) | WALK_EXACT | WALK_ALL_REGISTERS | WALK_FP_KNOWN | WALK_BX_KNOWN;
	return 0;
}

/*
 * The caller by the frame record at fp. `failed`: what it is if there is no such record. A caller on another stack may lie below.
 * A frame pointer of zero marks the outermost frame, System V ABI 3.4.1; a leaf may use the register for something else.
 */
static __always_inline int follow_frame_pointer(struct walk *w, __u32 failed, bool switches_stacks)
{
	__u64 frame[2];

	if (!w->fp)
		return end_walk(w, failed == LF_NO_ROWS && (w->flags & WALK_EXACT) ? LF_NO_ROWS : LF_COMPLETE);
	if (!(w->flags & WALK_FP_KNOWN) || (w->fp < w->sp && !switches_stacks) || (w->fp & 7))
		return end_walk(w, failed);
	if (read_user(w, frame, sizeof(frame), w->fp))
		return end_walk(w, failed);
	w->sp = w->fp + sizeof(frame);
	w->fp = frame[0];
	w->ip = frame[1];
	w->flags &= ~(WALK_EXACT | WALK_ALL_REGISTERS | WALK_BX_KNOWN);
	if (!w->ip) /* a thread's first frame */
		return end_walk(w, LF_COMPLETE);
	return 0;
}

/* The caller's value of a register that is tracked. False if the memory that should hold it could not be read. */
static __always_inline bool recover(struct walk *w, __u64 *value, __u32 known, __u8 saved, __s16 offset, __u64 cfa, __u64 fp)
{
	switch (saved) {
	case LF_SAVED_SAME:
		return true;
	case LF_SAVED_AT_CFA:
		w->flags |= known;
		return !read_user(w, value, sizeof(*value), cfa + offset);
	case LF_SAVED_AT_FP: /* known if the frame pointer is */
		if (!(w->flags & WALK_FP_KNOWN))
			w->flags &= ~known;
		return !read_user(w, value, sizeof(*value), fp + offset);
	default:
		w->flags &= ~known;
		return true;
	}
}

static __always_inline int apply_rule(struct walk *w, struct lf_rule *rule, __u64 lookup)
{
	__u64 cfa, words[2];

	switch (rule->cfa) {
	case LF_CFA_SP:
		cfa = w->sp + rule->cfa_offset;
		break;
	case LF_CFA_FP:
		if (!(w->flags & WALK_FP_KNOWN))
			return end_walk(w, LF_REGISTER_UNKNOWN);
		cfa = w->fp + rule->cfa_offset;
		break;
	case LF_CFA_DEREF_SP:
		if (read_user(w, &cfa, sizeof(cfa), w->sp + rule->cfa_offset))
			return end_walk(w, LF_UNREADABLE);
		cfa += rule->cfa_register;
		break;
	case LF_CFA_DEREF_FP:
		if (!(w->flags & WALK_FP_KNOWN))
			return end_walk(w, LF_REGISTER_UNKNOWN);
		if (read_user(w, &cfa, sizeof(cfa), w->fp + rule->cfa_offset))
			return end_walk(w, LF_UNREADABLE);
		cfa += rule->cfa_register;
		break;
	case LF_CFA_PLT:
		cfa = w->sp + 8 + ((__s32)(lookup & 15) >= rule->cfa_offset ? 8 : 0);
		break;
	case LF_CFA_BX:
		if (!(w->flags & WALK_BX_KNOWN))
			return end_walk(w, LF_REGISTER_UNKNOWN);
		cfa = w->bx + rule->cfa_offset;
		break;
	case LF_CFA_REGISTER:
		if (!(w->flags & WALK_ALL_REGISTERS))
			return end_walk(w, LF_REGISTER_UNKNOWN);
		cfa = w->registers[rule->cfa_register & (WALK_REGISTERS - 1)] + rule->cfa_offset;
		break;
	case LF_CFA_SIGNAL:
		return leave_signal(w);
	case LF_CFA_FRAME_POINTER:
		return follow_frame_pointer(w, LF_FRAME_POINTER_BROKEN, rule->cfa_register != 0);
	case LF_CFA_STOP:
		return end_walk(w, LF_COMPLETE);
	case LF_CFA_CLONE: /* 0 is what the child sees; a return address here is that of the child's first function */
		if (!(w->flags & WALK_ALL_REGISTERS) || !w->registers[RESULT_REGISTER])
			return end_walk(w, LF_COMPLETE);
		cfa = w->sp + rule->cfa_offset;
		break;
	default:
		return end_walk(w, LF_UNSUPPORTED_RULE);
	}
	/* A callee's CFA is its caller's stack pointer; x86 pushes the return address, so it has grown. */
#if defined(__TARGET_ARCH_x86)
	bool in_register = rule->ra == LF_SAVED_IN_REGISTER;

	if (cfa < w->sp || (cfa == w->sp && !(in_register && (w->flags & WALK_ALL_REGISTERS))))
		return end_walk(w, LF_NOT_GROWING);
	if (in_register) {
		if (!(w->flags & WALK_ALL_REGISTERS))
			return end_walk(w, LF_REGISTER_UNKNOWN);
		w->ip = w->registers[rule->ra_offset & (WALK_REGISTERS - 1)];
		if (!recover(w, &w->bx, WALK_BX_KNOWN, rule->bx, rule->bx_offset, cfa, w->fp) ||
		    !recover(w, &w->fp, WALK_FP_KNOWN, rule->fp, rule->fp_offset, cfa, w->fp))
			return end_walk(w, LF_UNREADABLE);
	} else if (rule->fp == LF_SAVED_AT_CFA && rule->fp_offset == -16 && rule->bx == LF_SAVED_UNDEFINED) {
		/* By far the most frequent: both in one read. */
		if (read_user(w, words, sizeof(words), cfa - 16))
			return end_walk(w, LF_UNREADABLE);
		w->fp = words[0];
		w->ip = words[1];
		w->flags = (w->flags | WALK_FP_KNOWN) & ~WALK_BX_KNOWN;
	} else {
		__u64 fp = w->fp;

		if (read_user(w, &words[1], sizeof(words[1]), cfa - 8))
			return end_walk(w, LF_UNREADABLE);
		w->ip = words[1];
		if (!recover(w, &w->bx, WALK_BX_KNOWN, rule->bx, rule->bx_offset, cfa, fp) ||
		    !recover(w, &w->fp, WALK_FP_KNOWN, rule->fp, rule->fp_offset, cfa, fp))
			return end_walk(w, LF_UNREADABLE);
	}
#elif defined(__TARGET_ARCH_arm64)
	if (cfa < w->sp || (cfa == w->sp && !(w->flags & WALK_ALL_REGISTERS)))
		return end_walk(w, LF_NOT_GROWING);
	if (rule->ra == LF_SAVED_AT_CFA) {
		if (read_user(w, &words[1], sizeof(words[1]), cfa + rule->ra_offset))
			return end_walk(w, LF_UNREADABLE);
		w->ip = words[1];
	} else if (rule->ra == LF_SAVED_SAME && (w->flags & WALK_ALL_REGISTERS))
		w->ip = w->registers[0];
	else
		return end_walk(w, LF_REGISTER_UNKNOWN);
	/* Pointer authentication puts a signature into the upper bits. */
	w->ip &= (1ULL << 52) - 1;
	if (!recover(w, &w->fp, WALK_FP_KNOWN, rule->fp, rule->fp_offset, cfa, w->fp))
		return end_walk(w, LF_UNREADABLE);
#endif
	w->sp = cfa;
	w->flags &= ~(WALK_EXACT | WALK_ALL_REGISTERS);
	if (!w->ip)
		return end_walk(w, LF_COMPLETE);
	return 0;
}

#include "python.h"
#include "ruby.h"

/* The interpreter's own frames, if this code is an interpreter's loop. They go before the loop's native frame: it runs them. */
static __always_inline void interpreter_frames(__u32 slot, struct segment_table *table)
{
	__u32 index = table->interpreter - 1, zero = 0;
	struct lf_interpreter *interpreter = bpf_map_lookup_elem(&interpreters, &index);
	struct lf_live *now = bpf_map_lookup_elem(&live, &zero);

	if (!interpreter || !now || !now->interpreters)
		return;
	if (interpreter->kind == LF_PYTHON)
		python_frames(slot, index);
	else if (interpreter->kind == LF_RUBY)
		ruby_frames(slot, index);
}

/* One frame: keeps it and goes to its caller. 0: there is one. A function of its own for the verifier. */
__noinline int walk_frame(__u32 slot)
{
	struct scratch *s = scratch_of(slot);

	if (!s)
		return 1;
	struct walk *w = &s->walk;
	__u64 lookup = w->ip - !(w->flags & WALK_EXACT);
	__u64 word = w->ip & LF_FRAME_ADDRESS;

	if (w->flags & WALK_EXACT)
		word |= (__u64)LF_FRAME_EXACT << LF_FRAME_KIND_SHIFT;
	struct lf_segment *current = &s->segments[w->segment & (LF_MAX_SEGMENTS - 1)];
	int found = FOUND;

	if (!w->met || lookup < current->start || lookup >= current->end)
		found = find_segment(slot, lookup);
	if (found != FOUND) {
		/* An address that is no code's is no frame, but for the leaf: the program may have jumped there. */
		if (!(w->flags & WALK_STARTED))
			push_word(s, word);
		if (w->flags & WALK_GUESSED)
			return end_walk(w, LF_NO_ROWS);
		return end_walk(w, found == FOUND_UNREADABLE ? LF_NO_MAPPING_FOUND : LF_NOT_MAPPED);
	}
	__u32 at = w->segment & (LF_MAX_SEGMENTS - 1);
	struct segment_table *table = &s->tables[at];
	struct lf_rule *rule = NULL;

	w->flags &= ~WALK_GUESSED;
	if (table->state == LF_OBJECT_READY) {
		__u32 number = rule_number(slot, s, at, lookup);

		rule = bpf_map_lookup_elem(&rules, &number);
		if (rule && (rule->flags & LF_RULE_INTERPRETER) && table->interpreter)
			interpreter_frames(slot, table);
	}
	if (!push_word(s, word))
		return end_walk(w, LF_TRUNCATED);
	int done;

	if (rule && rule->cfa != LF_CFA_NONE)
		done = apply_rule(w, rule, lookup);
	else if (table->state == LF_OBJECT_ANNOUNCED)
		done = end_walk(w, LF_NO_ROWS_YET);
	else if (s->segments[at].inode) {
		/* Code of a file that says nothing about it: perhaps it keeps frame pointers. What comes next will tell. */
		done = follow_frame_pointer(w, LF_NO_ROWS, false);
		w->flags |= WALK_GUESSED;
	} else if (ruby_leave_compiled(s))
		done = 0;
	else
		done = follow_frame_pointer(w, LF_FRAME_POINTER_BROKEN, false); /* code made at run time keeps them */
	w->flags |= WALK_STARTED;
	return done;
}

static long walk_callback(__u64 index, void *slot)
{
	(void)index;
	return walk_frame(*(__u32 *)slot) != 0; /* the verifier wants 0 or 1 */
}

/* Walks the stack that scratch::walk describes. */
static __always_inline void walk_stack(__u32 slot)
{
	if (config.use_loop)
		bpf_loop(LF_MAX_USER_FRAMES + 1, walk_callback, &slot, 0);
	else
		for (int i = 0; i < LF_MAX_USER_FRAMES + 1; i++)
			if (walk_frame(slot))
				break;
	ruby_rest(slot);
}
