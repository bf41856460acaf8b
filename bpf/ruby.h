/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Frames of CRuby. A thread's (or fiber's) execution context has a stack of control frames, newest first, one for each method, block
 * or C function. Each native activation of the loop (vm_exec) runs the control frames from where the previous activation stopped, up to
 * and with the one that is flagged FINISH. Names are found in user space: crates/interpreters/src/ruby/.
 *
 * Where fields lie depends on the version: lf_interpreter::offsets. Mirror of the enums: crates/interpreters/src/ruby/layout.rs.
 */
#pragma once
#include "walk.h"

/* lf_interpreter::symbols. 0: not there. */
enum lf_ruby_symbol {
	LF_RUBY_THREAD_LOCAL = 0, /* word of the global offset table: the object's module number, or the distance from the thread pointer */
	LF_RUBY_EC = 1,           /* ruby_current_execution_context_ptr (before 3.0) */
};

/* lf_interpreter::offsets. Offsets of fields in bytes, unless said. */
enum lf_ruby_offset {
	LF_RUBY_ACCESS = 0,       /* enum lf_ruby_access */
	LF_RUBY_TLS_OFFSET = 1,   /* ruby_current_ec in the module's data, or behind the word, or from the thread pointer; signed */
	LF_RUBY_DTV = 2,          /* LF_RUBY_TLS_MODULE: the pointer to the thread's vector of modules from the thread pointer, signed */
	LF_RUBY_DTV_ENTRY = 3,    /* bytes of an entry in it: 16 (glibc), 8 (musl) */
	LF_RUBY_EC_STACK = 4,
	LF_RUBY_EC_STACK_SIZE = 5, /* in words */
	LF_RUBY_EC_CFP = 6,
	LF_RUBY_EC_THREAD = 7,
	LF_RUBY_EC_MACHINE_START = 8,
	LF_RUBY_EC_MACHINE_SIZE = 9, /* in bytes */
	LF_RUBY_CFP_SIZE = 10,
	LF_RUBY_CFP_PC = 11,
	LF_RUBY_CFP_ISEQ = 12,
	LF_RUBY_CFP_EP = 13,
	LF_RUBY_VM_OBJSPACE = 14,
	LF_RUBY_OBJSPACE_FLAGS = 15,
	LF_RUBY_DURING_GC = 16,     /* mask in the 32-bit word of flags; 0: cannot be seen */
	LF_RUBY_THREAD_RACTOR = 17,
	LF_RUBY_RACTOR_EC = 18,     /* the context that runs in a ractor; 0: there are no ractors (before 3.0) */
	LF_RUBY_THREAD_VM = 19,
};

/* How the execution context is found. */
enum lf_ruby_access {
	LF_RUBY_GLOBAL = 1,     /* one global pointer: the thread that holds the lock */
	LF_RUBY_TLS_MODULE = 2, /* thread-local; the table has the module's number */
	LF_RUBY_TP_IN_GOT = 3,  /* thread-local; the table has the distance of it from the thread pointer */
	LF_RUBY_TP_FIXED = 4,   /* thread-local; the distance is known from the file */
};

/* Top byte of a frame's second word; the rest of it is the address of the next instruction (pc). */
enum lf_ruby_frame {
	LF_RUBY_FINISH = 1,       /* the last one that an activation of the loop runs */
	LF_RUBY_METHOD_ENTRY = 2, /* the address is a method entry's, not an iseq's */
	LF_RUBY_C_FUNCTION = 4,
	LF_RUBY_NOTHING = 8,      /* no frame: this activation has left its frames, or not begun them */
};

/* Flags of an environment, ep[0]: enum vm_frame_env_flags, vm_core.h. The same from 2.5 to 3.4; compared when an interpreter is detected. */
#define RUBY_FLAG_FINISH 0x20
#define RUBY_FLAG_CFRAME 0x80
#define RUBY_MAGIC_MASK 0x7fff0001
#define RUBY_MAGIC_METHOD 0x11110001
#define RUBY_MAGIC_CFUNC 0x55550001
#define RUBY_MAGIC_DUMMY 0x79990001
/* Internal objects: RBasic::flags. T_MASK, T_IMEMO: ruby/internal/value_type.h; enum imemo_type: internal/imemo.h. */
#define RUBY_T_MASK 0x1f
#define RUBY_T_IMEMO 0x1a
#define RUBY_IMEMO_SHIFT 12
#define RUBY_IMEMO_MASK 0xf
#define RUBY_IMEMO_SVAR 2
#define RUBY_IMEMO_MENT 6

/* walk::interpreter_state. Valid if interpreter_frame is not 0. */
enum ruby_state {
	RUBY_END = 0,   /* end of the stack of control frames */
	RUBY_INDEX = 1, /* in `interpreters`; RUBY_REST, too: the native walk is over */
	RUBY_OWNER = 2, /* RUBY_MINE: this state is not another language's */
};
#define RUBY_MINE 0x59425552
#define RUBY_REST (1ULL << 32)
/* Of a control frame, at most; 56 or 64 in the versions that are known. */
#define RUBY_FRAME_BYTES 64
#define RUBY_MODULES_MAX 4096
/* walk::interpreter_frame after a failure: no address of a frame. */
#define RUBY_GIVEN_UP 1
/* Groups of frames looked for behind the last activation that the native walk found. */
#define RUBY_REST_GROUPS 64

static __always_inline int ruby_fail(struct walk *w, __u32 outcome)
{
	w->interpreter_outcome = outcome;
	w->interpreter_frame = RUBY_GIVEN_UP;
	return 1;
}

/* Bits of a method entry's address that can be one: user addresses, aligned. */
static __always_inline bool ruby_pointer(__u64 address)
{
	return address >= 4096 && !(address & 7) && !(address >> 47);
}

/* The thread's pointer to its static thread-local data. */
static __always_inline __u64 ruby_thread_pointer(struct walk *w)
{
	struct task_struct *task = (struct task_struct *)w->task;

#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return BPF_CORE_READ(task, thread.uw.tp_value);
#endif
}

/* The execution context of the walk's thread; 0: none. `base`: what symbols are relative to. */
static __always_inline __u64 ruby_context(struct walk *w, struct lf_interpreter *ruby, __u64 base)
{
	__u32 access = ruby->offsets[LF_RUBY_ACCESS];
	__u64 word = 0, vector = 0, at, ec = 0;

	if (access == LF_RUBY_GLOBAL)
		at = base + ruby->symbols[LF_RUBY_EC];
	else {
		__u64 thread = ruby_thread_pointer(w);

		if (!thread)
			return 0;
		at = thread;
		if (access != LF_RUBY_TP_FIXED && read_user(w, &word, sizeof(word), base + ruby->symbols[LF_RUBY_THREAD_LOCAL]))
			return 0;
		if (access == LF_RUBY_TP_IN_GOT)
			at += word;
		else if (access == LF_RUBY_TLS_MODULE) {
			if (!word || word > RUBY_MODULES_MAX ||
			    read_user(w, &vector, sizeof(vector), thread + (__s32)ruby->offsets[LF_RUBY_DTV]) ||
			    read_user(w, &at, sizeof(at), vector + word * ruby->offsets[LF_RUBY_DTV_ENTRY]))
				return 0;
			/* All bits set: this thread has not used the module's data yet. */
			if (!at || at == ~0ULL)
				return 0;
		}
		at += (__s32)ruby->offsets[LF_RUBY_TLS_OFFSET];
	}
	if (read_user(w, &ec, sizeof(ec), at))
		return 0;
	return ec;
}

static __always_inline __u64 ruby_field(struct scratch *s, struct lf_interpreter *ruby, __u32 field)
{
	/* Contexts and control frames are read as one block; their fields are words. */
	return *(__u64 *)(s->buffer + (ruby->offsets[field] & 0x1f8));
}

/* Whether this thread collects garbage: the flag is the whole process's, so the thread must be the one that runs in its ractor. */
static __always_inline bool ruby_collects(struct walk *w, struct lf_interpreter *ruby, __u64 thread, __u64 ec)
{
	__u64 at = 0;
	__u32 flags = 0;

	if (!ruby->offsets[LF_RUBY_DURING_GC] || read_user(w, &at, sizeof(at), thread + ruby->offsets[LF_RUBY_THREAD_VM]) ||
	    read_user(w, &at, sizeof(at), at + ruby->offsets[LF_RUBY_VM_OBJSPACE]) ||
	    read_user(w, &flags, sizeof(flags), at + ruby->offsets[LF_RUBY_OBJSPACE_FLAGS]) ||
	    !(flags & ruby->offsets[LF_RUBY_DURING_GC]))
		return false;
	if (!ruby->offsets[LF_RUBY_RACTOR_EC])
		return true;
	if (read_user(w, &at, sizeof(at), thread + ruby->offsets[LF_RUBY_THREAD_RACTOR]) ||
	    read_user(w, &at, sizeof(at), at + ruby->offsets[LF_RUBY_RACTOR_EC]))
		return false;
	return at == ec;
}

/* Finds the control frames of the walk's thread. 0: found. A function of its own for the verifier. */
__noinline int ruby_begin(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *ruby = bpf_map_lookup_elem(&interpreters, &index);

	if (!s || !ruby)
		return 1;
	struct walk *w = &s->walk;
	__u64 ec = ruby_context(w, ruby, s->ruby_of.base);

	w->interpreter_state[RUBY_OWNER] = RUBY_MINE;
	w->interpreter_state[RUBY_INDEX] = index;
	if (!ruby_pointer(ec))
		return ruby_fail(w, LF_INTERPRETER_NO_THREAD);
	if (read_user(w, s->buffer, 256, ec))
		return ruby_fail(w, LF_INTERPRETER_UNREADABLE);
	__u64 first = ruby_field(s, ruby, LF_RUBY_EC_STACK), words = ruby_field(s, ruby, LF_RUBY_EC_STACK_SIZE);
	__u64 frame = ruby_field(s, ruby, LF_RUBY_EC_CFP), end = first + words * 8;
	__u64 above = ruby_field(s, ruby, LF_RUBY_EC_MACHINE_START), size = ruby_field(s, ruby, LF_RUBY_EC_MACHINE_SIZE);
	__u64 thread = ruby_field(s, ruby, LF_RUBY_EC_THREAD);
	__u32 frame_size = ruby->offsets[LF_RUBY_CFP_SIZE];

	/* The thread's or fiber's own stack: another's context would have another. Between two fibers it does not fit, either. */
	if (w->sp > above || above - w->sp > size)
		return ruby_fail(w, LF_INTERPRETER_NO_THREAD);
	if (!ruby_pointer(first) || !ruby_pointer(frame) || words >> 32 || frame < first || frame > end || !frame_size ||
	    (end - frame) % frame_size)
		return ruby_fail(w, LF_INTERPRETER_INCONSISTENT);
	w->interpreter_frame = frame;
	w->interpreter_state[RUBY_END] = end;
	if (ruby_collects(w, ruby, thread, ec))
		push_word(s, (__u64)LF_FRAME_GC << LF_FRAME_KIND_SHIFT);
	return 0;
}

/* One control frame. 0: the next one is run by the same activation. */
static __always_inline int ruby_step(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *ruby = bpf_map_lookup_elem(&interpreters, &index);
	__u64 words[3], object[2];

	if (!s || !ruby)
		return 1;
	struct walk *w = &s->walk;
	__u64 frame = w->interpreter_frame;
	__u32 bytes = ruby->offsets[LF_RUBY_CFP_SIZE];

	if (frame >= w->interpreter_state[RUBY_END])
		return 1;
	/* Not more than it has: what lies behind the oldest frame of a fiber may not be mapped. */
	if (bytes > RUBY_FRAME_BYTES || read_user(w, s->buffer, bytes & (2 * RUBY_FRAME_BYTES - 1), frame))
		return ruby_fail(w, LF_INTERPRETER_UNREADABLE);
	__u64 pc = ruby_field(s, ruby, LF_RUBY_CFP_PC), iseq = ruby_field(s, ruby, LF_RUBY_CFP_ISEQ);
	__u64 ep = ruby_field(s, ruby, LF_RUBY_CFP_EP);

	/* ep[-2]: method entry (or what stands for it), ep[-1]: outer environment or block, ep[0]: flags. */
	if (read_user(w, words, sizeof(words), ep - 16)) {
		/* A fiber's stack of frames begins with an empty one. */
		w->interpreter_frame = frame + ruby->offsets[LF_RUBY_CFP_SIZE];
		if (!pc && !iseq && w->interpreter_frame >= w->interpreter_state[RUBY_END])
			return 1;
		return ruby_fail(w, LF_INTERPRETER_UNREADABLE);
	}
	__u32 magic = words[2] & RUBY_MAGIC_MASK;
	__u64 address = iseq, flags = words[2] & RUBY_FLAG_FINISH ? LF_RUBY_FINISH : 0, entry = words[0];

	/* Every frame's number is 0xnnnn0001, the method's the lowest. */
	if (magic < RUBY_MAGIC_METHOD || !(magic & 1))
		return ruby_fail(w, LF_INTERPRETER_INCONSISTENT);
	w->interpreter_frame = frame + ruby->offsets[LF_RUBY_CFP_SIZE];
	/* A dummy is FINISH without an activation. */
	if (magic == RUBY_MAGIC_DUMMY)
		return 0;
	if (magic == RUBY_MAGIC_METHOD || magic == RUBY_MAGIC_CFUNC) {
		bool found = false;

		if (ruby_pointer(entry) && !read_user(w, object, sizeof(object), entry)) {
			if ((object[0] & RUBY_T_MASK) == RUBY_T_IMEMO &&
			    (object[0] >> RUBY_IMEMO_SHIFT & RUBY_IMEMO_MASK) == RUBY_IMEMO_SVAR) {
				/* The method has used $~ or $_: the entry is behind where they are kept. */
				entry = object[1];
				if (!ruby_pointer(entry) || read_user(w, object, sizeof(object), entry))
					object[0] = 0;
			}
			found = (object[0] & RUBY_T_MASK) == RUBY_T_IMEMO &&
				(object[0] >> RUBY_IMEMO_SHIFT & RUBY_IMEMO_MASK) == RUBY_IMEMO_MENT;
		}
		if (found) {
			address = entry;
			flags |= LF_RUBY_METHOD_ENTRY;
		}
		if (magic == RUBY_MAGIC_CFUNC) {
			flags |= LF_RUBY_C_FUNCTION;
			if (!found)
				address = 0;
		}
	} else if (words[2] & RUBY_FLAG_CFRAME)
		address = 0; /* a block written in C */
	if (address) {
		struct lf_counters *c = own_counters(slot);

		if (!push_pair(s, LF_FRAME_RUBY, address, flags << LF_FRAME_KIND_SHIFT | (pc & LF_FRAME_ADDRESS)))
			return ruby_fail(w, LF_INTERPRETER_TOO_MANY);
		if (c)
			c->interpreter_frames++;
	}
	return !!(flags & LF_RUBY_FINISH);
}

/* Calls may be nested 8 deep: the callback has its own copy. */
struct ruby_loop {
	__u32 slot;
	__u32 index;
};

static long ruby_callback(__u64 round, void *context)
{
	struct ruby_loop *loop = context;

	(void)round;
	return ruby_step(loop->slot, loop->index) ? 1 : 0;
}

__noinline int ruby_frame(__u32 slot, __u32 index)
{
	return ruby_step(slot, index);
}

/* The control frames that the activation of the loop at the walk's current frame runs. */
__noinline int ruby_frames(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);

	if (!s)
		return 0;
	struct walk *w = &s->walk;
	__u32 before;

	if (!w->interpreter_frame) {
		struct lf_segment *segment = &s->segments[w->segment & (LF_MAX_SEGMENTS - 1)];

		s->ruby_of.base = segment->start - segment->file_offset;
		s->ruby_of.code_start = segment->start;
		s->ruby_of.code_end = segment->end;
		s->ruby_of.process_start_ns = s->record.process_start_ns;
		s->ruby_of.exec_id = s->record.exec_id;
		s->ruby_of.index = index;
		if (ruby_begin(slot, index))
			return 0;
	} else if (w->interpreter_frame == RUBY_GIVEN_UP || w->interpreter_state[RUBY_OWNER] != RUBY_MINE)
		return 0; /* the second: the stack began in another language */
	before = w->at;
	if (config.use_loop) {
		struct ruby_loop loop = { .slot = slot, .index = index };

		bpf_loop(LF_MAX_USER_FRAMES, ruby_callback, &loop, 0);
	} else
		for (int i = 0; i < LF_MAX_USER_FRAMES; i++)
			if (ruby_frame(slot, index))
				break;
	if (w->at == before && !(w->interpreter_state[RUBY_INDEX] & RUBY_REST))
		push_pair(s, LF_FRAME_RUBY, 0, (__u64)LF_RUBY_NOTHING << LF_FRAME_KIND_SHIFT);
	return 0;
}

/*
 * Leaves code that YJIT of Ruby 3.1 compiled: it keeps no frame pointer, but its native frame is always the same, three saved
 * registers below the return address (rbx, r12, r13: yjit_entry_prologue(), yjit_codegen.c), and only the interpreter calls it. False if
 * what the walk stands at does not look like that.
 */
static __always_inline bool ruby_leave_compiled(struct scratch *s)
{
#if defined(__TARGET_ARCH_x86)
	struct walk *w = &s->walk;
	__u64 *words = (void *)s->buffer;

	if (s->ruby_of.process_start_ns != s->record.process_start_ns || s->ruby_of.exec_id != s->record.exec_id ||
	    read_user(w, words, 4 * sizeof(*words), w->sp) || words[3] < s->ruby_of.code_start || words[3] >= s->ruby_of.code_end)
		return false;
	w->bx = words[0];
	w->ip = words[3];
	w->sp += 4 * sizeof(*words);
	w->flags = (w->flags & ~(WALK_EXACT | WALK_ALL_REGISTERS)) | WALK_BX_KNOWN;
	return true;
#else
	(void)s;
	return false;
#endif
}

/*
 * A walk that ended for want of rows before it came to an activation, in a process whose Ruby was met before on this CPU: user space will
 * find the activations, the frames have to be taken now. A function of its own for the verifier.
 */
__noinline int ruby_begin_late(__u32 slot)
{
	struct scratch *s = scratch_of(slot);
	__u32 zero = 0;
	struct lf_live *now = bpf_map_lookup_elem(&live, &zero);

	if (!s || !now || !now->interpreters || s->ruby_of.process_start_ns != s->record.process_start_ns ||
	    s->ruby_of.exec_id != s->record.exec_id)
		return 0;
	__u32 index = s->ruby_of.index;
	struct lf_interpreter *ruby = bpf_map_lookup_elem(&interpreters, &index);

	if (ruby && ruby->kind == LF_RUBY)
		ruby_begin(slot, index);
	return 0;
}

/*
 * At the end of a walk: control frames that no activation was found for. There are some when a frame has been made and the loop not
 * been entered yet, then all groups stand one activation too far to the leaf (crates/interpreters/src/ruby/align.rs puts them right);
 * and when the native walk broke off.
 */
__noinline int ruby_rest(__u32 slot)
{
	struct scratch *s = scratch_of(slot);

	if (!s)
		return 0;
	struct walk *w = &s->walk;

	if (!w->interpreter_frame && w->outcome == LF_NO_ROWS_YET)
		ruby_begin_late(slot);
	if (w->interpreter_frame <= RUBY_GIVEN_UP || w->interpreter_state[RUBY_OWNER] != RUBY_MINE)
		return 0;
	__u32 index = w->interpreter_state[RUBY_INDEX];

	w->interpreter_state[RUBY_INDEX] |= RUBY_REST;
	for (int i = 0; i < RUBY_REST_GROUPS; i++) {
		if (w->interpreter_frame <= RUBY_GIVEN_UP || w->interpreter_frame >= w->interpreter_state[RUBY_END])
			break;
		ruby_frames(slot, index);
	}
	return 0;
}
