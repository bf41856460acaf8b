/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Frames of CPython. An activation of the interpreter's loop (_PyEval_EvalFrameDefault) runs one Python frame up to 3.10; since 3.11 a
 * Python function that calls another goes on in the same activation, so one activation runs several. What belongs to which is told by
 * something that each activation keeps in its own native frame: a _PyCFrame (3.11, 3.12), the last frame of its chain (3.13 and later).
 * Names are found in user space: crates/interpreters/src/python/.
 *
 * Where fields lie depends on the version: lf_interpreter::offsets. Mirror of the enums: crates/interpreters/src/python/offsets.rs.
 */
#pragma once
#include "walk.h"

/* lf_interpreter::symbols */
enum lf_python_symbol {
	LF_PYTHON_RUNTIME = 0,   /* _PyRuntime */
	LF_PYTHON_CODE_TYPE = 1, /* PyCode_Type; for user space */
};

/* How frames hang together. */
enum lf_python_kind {
	LF_PYTHON_OBJECTS = 1, /* 3.8 to 3.10: a frame object for each activation */
	LF_PYTHON_ENTRY = 2,   /* 3.11: the frames of a _PyCFrame up to the one with is_entry */
	LF_PYTHON_SHIM = 3,    /* 3.12: the same, up to one that the C stack owns */
	LF_PYTHON_DIRECT = 4,  /* 3.13 and later: no _PyCFrame */
};

/* lf_interpreter::offsets: in bytes, unless said. From 32 on they are user space's own. */
enum lf_python_offset {
	LF_PYTHON_KIND = 0, /* enum lf_python_kind */
	LF_PYTHON_RUNTIME_HEAD,
	LF_PYTHON_RUNTIME_CURRENT, /* thread state that holds the lock; 0: not there */
	LF_PYTHON_INTERPRETER_NEXT,
	LF_PYTHON_INTERPRETER_THREADS,
	LF_PYTHON_THREAD_PREVIOUS,
	LF_PYTHON_THREAD_NEXT,
	LF_PYTHON_THREAD_INTERPRETER,
	LF_PYTHON_THREAD_ID,     /* pthread_self() */
	LF_PYTHON_THREAD_NATIVE, /* gettid(); 0: not there */
	LF_PYTHON_THREAD_STATUS, /* 0: not there */
	LF_PYTHON_THREAD_FRAME,  /* the frame, or the _PyCFrame */
	LF_PYTHON_CFRAME_FRAME,
	LF_PYTHON_CFRAME_PREVIOUS,
	LF_PYTHON_FRAME_BYTES, /* to be read of a frame */
	LF_PYTHON_FRAME_CODE,
	LF_PYTHON_FRAME_PREVIOUS,
	LF_PYTHON_FRAME_INSTRUCTION, /* f_lasti, prev_instr, instr_ptr */
	LF_PYTHON_FRAME_OWNER,       /* owner, is_entry */
	LF_PYTHON_OWNER_STACK,       /* value of `owner` from which on a frame is the C stack's */
	LF_PYTHON_CODE_INSTRUCTIONS,
	LF_PYTHON_COLLECTING, /* int, in the interpreter's state; 0: unknown */
	LF_PYTHON_COLLECTING_IN_RUNTIME, /* 1: in the runtime's */
	LF_PYTHON_ACTIVE_BIT, /* in the status: this is the thread's current state */
};

/* Bytes of a thread's state that are read. Mirror: detect.rs. */
#define PYTHON_THREAD_BYTES 192
#define PYTHON_FRAME_BYTES 128
/* Most threads looked at to find one. It is then remembered. */
#define PYTHON_THREADS_MAX 4096
#define PYTHON_THREADS_MAX_PLAIN 128
/* Unknown activations passed over: code of the loop that is not flagged as such. */
#define PYTHON_SKIPS_MAX 8

/* walk::interpreter_frame: no addresses. */
#define PYTHON_GIVEN_UP 1
#define PYTHON_END 2
/* walk::interpreter_state[2]: it is this language's. */
#define PYTHON_MINE 0x50595448

/* Places in scratch::node, which is free when no mapping is looked for. */
enum python_scratch {
	PYTHON_NEXT = 0,  /* thread state or frame to look at */
	PYTHON_INTERPRETER,
	PYTHON_FOUND,
	PYTHON_WANTED,    /* the thread's id */
	PYTHON_BEFORE,    /* walk::at and walk::hash before this activation's frames */
	PYTHON_HASH,
	PYTHON_TOP,       /* end of the activation's native frame */
	PYTHON_FRAMES,    /* pushed for this activation */
	PYTHON_HEAD,      /* the first interpreter's state, and the next one */
	PYTHON_SECOND,
	PYTHON_KEY,       /* a struct python_thread_key: two words */
};

struct python_thread_key {
	__u64 task;
	__u64 start_ns;
};

/* Thread states found lately. What is in here is not believed without a look at the state. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct python_thread_key);
	__type(value, __u64);
} python_threads SEC(".maps");

struct python_loop {
	__u32 slot;
	__u32 index;
};

static __always_inline int python_fail(struct walk *w, __u32 outcome)
{
	w->interpreter_outcome = outcome;
	w->interpreter_frame = PYTHON_GIVEN_UP;
	return 1;
}

static __always_inline bool python_pointer(__u64 address)
{
	return address >= 4096 && !(address & 7) && !(address >> 56);
}

/* Fields of what was read into scratch::buffer. */
static __always_inline __u64 python_word(struct scratch *s, struct lf_interpreter *python, __u32 field)
{
	return *(__u64 *)(s->buffer + (python->offsets[field] & 0x1f8));
}

static __always_inline __u32 python_half(struct scratch *s, struct lf_interpreter *python, __u32 field)
{
	return *(__u32 *)(s->buffer + (python->offsets[field] & 0x1fc));
}

/* What the interpreter knows the thread by. x86-64: glibc's and musl's pthread_self() is the thread pointer. */
static __always_inline __u64 python_own_id(struct walk *w)
{
	struct task_struct *task = (struct task_struct *)w->task;

#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);
	struct upid *number = numbers + (BPF_CORE_READ(pid, level) & 31) * bpf_core_type_size(struct upid);

	return BPF_CORE_READ(number, nr);
#endif
}

/* Whether the thread's state in scratch::buffer is that of the wanted thread. */
static __always_inline bool python_is_wanted(struct scratch *s, struct lf_interpreter *python)
{
#if defined(__TARGET_ARCH_x86)
	return python_word(s, python, LF_PYTHON_THREAD_ID) == s->node[PYTHON_WANTED];
#else
	return python->offsets[LF_PYTHON_THREAD_NATIVE] &&
	       python_word(s, python, LF_PYTHON_THREAD_NATIVE) == s->node[PYTHON_WANTED];
#endif
}

/* Whether the thread's state in scratch::buffer is its thread's current one; true if that cannot be seen. */
static __always_inline bool python_is_active(struct scratch *s, struct lf_interpreter *python)
{
	if (!python->offsets[LF_PYTHON_THREAD_STATUS])
		return true;
	return python_half(s, python, LF_PYTHON_THREAD_STATUS) >> (python->offsets[LF_PYTHON_ACTIVE_BIT] & 31) & 1;
}

/* One step through the threads of all interpreters. 0: go on. */
static __always_inline int python_look(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *python = bpf_map_lookup_elem(&interpreters, &index);

	if (!s || !python)
		return 1;
	struct walk *w = &s->walk;
	__u64 thread = s->node[PYTHON_NEXT], interpreter = s->node[PYTHON_INTERPRETER];

	if (!thread) {
		if (!interpreter || read_user(w, &interpreter, sizeof(interpreter), interpreter + python->offsets[LF_PYTHON_INTERPRETER_NEXT]) ||
		    !python_pointer(interpreter) ||
		    read_user(w, &thread, sizeof(thread), interpreter + python->offsets[LF_PYTHON_INTERPRETER_THREADS]))
			return 1;
		s->node[PYTHON_INTERPRETER] = interpreter;
		s->node[PYTHON_NEXT] = thread;
		return 0;
	}
	if (!python_pointer(thread) || read_user(w, s->buffer, PYTHON_THREAD_BYTES, thread))
		return 1;
	s->node[PYTHON_NEXT] = python_word(s, python, LF_PYTHON_THREAD_NEXT);
	if (!python_is_wanted(s, python))
		return 0;
	/* A thread that runs several interpreters has a state in each. */
	if (python_is_active(s, python)) {
		s->node[PYTHON_FOUND] = thread;
		return 1;
	}
	if (!s->node[PYTHON_FOUND])
		s->node[PYTHON_FOUND] = thread;
	return 0;
}

static long python_look_callback(__u64 round, void *context)
{
	struct python_loop *loop = context;

	(void)round;
	return python_look(loop->slot, loop->index) ? 1 : 0;
}

__noinline int python_look_plain(__u32 slot, __u32 index)
{
	return python_look(slot, index);
}

/* Whether the state in scratch::buffer, at `thread`, still hangs in its interpreter's list: memory of a deleted one looks the same. */
static __always_inline bool python_is_listed(struct scratch *s, struct lf_interpreter *python, __u64 thread)
{
	__u64 before = python_word(s, python, LF_PYTHON_THREAD_PREVIOUS), at;

	if (before)
		at = before + python->offsets[LF_PYTHON_THREAD_NEXT];
	else
		at = python_word(s, python, LF_PYTHON_THREAD_INTERPRETER) + python->offsets[LF_PYTHON_INTERPRETER_THREADS];
	return !read_user(&s->walk, &at, sizeof(at), at) && at == thread;
}

/* Brings the state of the walk's thread into scratch::buffer and its address into scratch::node. A function of its own for the verifier. */
__noinline int python_find_thread(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *python = bpf_map_lookup_elem(&interpreters, &index);

	if (!s || !python)
		return 1;
	struct walk *w = &s->walk;
	struct lf_segment *segment = &s->segments[w->segment & (LF_MAX_SEGMENTS - 1)];
	__u64 runtime = segment->start - segment->file_offset + python->symbols[LF_PYTHON_RUNTIME], thread = 0;
	/* All functions that are being called may have 512 bytes of stack together: what can be elsewhere is. */
	struct python_thread_key *key = (void *)&s->node[PYTHON_KEY];

	key->task = w->task;
	key->start_ns = s->record.thread_start_ns;
	s->node[PYTHON_FOUND] = 0;
	s->node[PYTHON_WANTED] = python_own_id(w);
	if (!s->node[PYTHON_WANTED])
		return 1;
	/* Mostly it is the one that holds the lock. */
	if (python->offsets[LF_PYTHON_RUNTIME_CURRENT] &&
	    !read_user(w, &thread, sizeof(thread), runtime + python->offsets[LF_PYTHON_RUNTIME_CURRENT]) && python_pointer(thread) &&
	    !read_user(w, s->buffer, PYTHON_THREAD_BYTES, thread) && python_is_wanted(s, python)) {
		s->node[PYTHON_FOUND] = thread;
		return 0;
	}
	__u64 *known = bpf_map_lookup_elem(&python_threads, key);

	if (known) {
		thread = *known;
		if (python_pointer(thread) && !read_user(w, s->buffer, PYTHON_THREAD_BYTES, thread) && python_is_wanted(s, python) &&
		    python_is_listed(s, python, thread)) {
			s->node[PYTHON_SECOND] = 0;
			/* Not the current one, and there are others: one of them may be. */
			if (python_is_active(s, python) || read_user(w, &s->node[PYTHON_HEAD], sizeof(__u64), runtime + python->offsets[LF_PYTHON_RUNTIME_HEAD]) ||
			    read_user(w, &s->node[PYTHON_SECOND], sizeof(__u64), s->node[PYTHON_HEAD] + python->offsets[LF_PYTHON_INTERPRETER_NEXT]) ||
			    !s->node[PYTHON_SECOND]) {
				s->node[PYTHON_FOUND] = thread;
				return 0;
			}
		}
	}
	s->node[PYTHON_NEXT] = 0;
	s->node[PYTHON_INTERPRETER] = 0;
	if (read_user(w, &s->node[PYTHON_INTERPRETER], sizeof(__u64), runtime + python->offsets[LF_PYTHON_RUNTIME_HEAD]) ||
	    !python_pointer(s->node[PYTHON_INTERPRETER]) ||
	    read_user(w, &s->node[PYTHON_NEXT], sizeof(__u64), s->node[PYTHON_INTERPRETER] + python->offsets[LF_PYTHON_INTERPRETER_THREADS]))
		return 1;
	if (config.use_loop) {
		struct python_loop loop = { .slot = slot, .index = index };

		bpf_loop(PYTHON_THREADS_MAX, python_look_callback, &loop, 0);
	} else
		for (int i = 0; i < PYTHON_THREADS_MAX_PLAIN; i++)
			if (python_look_plain(slot, index))
				break;
	thread = s->node[PYTHON_FOUND];
	if (!thread || read_user(w, s->buffer, PYTHON_THREAD_BYTES, thread))
		return 1;
	bpf_map_update_elem(&python_threads, key, &thread, BPF_ANY);
	return 0;
}

/* Whether this thread collects garbage: it must be the one that runs in its interpreter. */
static __always_inline bool python_collects(struct scratch *s, struct lf_interpreter *python, __u64 runtime)
{
	__u64 at = python_word(s, python, LF_PYTHON_THREAD_INTERPRETER), current = 0;
	__u32 collecting = 0;

	if (!python->offsets[LF_PYTHON_COLLECTING] || !python_is_active(s, python))
		return false;
	if (python->offsets[LF_PYTHON_RUNTIME_CURRENT] &&
	    (read_user(&s->walk, &current, sizeof(current), runtime + python->offsets[LF_PYTHON_RUNTIME_CURRENT]) ||
	     current != s->node[PYTHON_FOUND]))
		return false;
	if (python->offsets[LF_PYTHON_COLLECTING_IN_RUNTIME])
		at = runtime;
	return !read_user(&s->walk, &collecting, sizeof(collecting), at + python->offsets[LF_PYTHON_COLLECTING]) && collecting;
}

/* Before the first frame of a stack. 0: there may be frames. */
static __always_inline int python_begin(__u32 slot, __u32 index, struct scratch *s, struct lf_interpreter *python)
{
	struct walk *w = &s->walk;

	w->interpreter_state[2] = PYTHON_MINE;
	if (python_find_thread(slot, index))
		return python_fail(w, LF_INTERPRETER_NO_THREAD);
	struct lf_segment *segment = &s->segments[w->segment & (LF_MAX_SEGMENTS - 1)];
	__u64 frame = python_word(s, python, LF_PYTHON_THREAD_FRAME);

	w->interpreter_frame = frame ? frame : PYTHON_END;
	/* Where the loop itself runs right now, Python code runs: a finalizer, if the collector waits for it below. */
	if (!(w->flags & WALK_EXACT) && python_collects(s, python, segment->start - segment->file_offset + python->symbols[LF_PYTHON_RUNTIME]))
		push_word(s, (__u64)LF_FRAME_GC << LF_FRAME_KIND_SHIFT);
	return 0;
}

/* The end of the native frame at which the walk stands; the highest address if that cannot be told. */
static __always_inline __u64 python_top(__u32 slot, struct scratch *s)
{
	struct walk *w = &s->walk;
	__u32 number = rule_number(slot, s, w->segment, w->ip - !(w->flags & WALK_EXACT));
	struct lf_rule *rule = bpf_map_lookup_elem(&rules, &number);

	if (rule && rule->cfa == LF_CFA_SP)
		return w->sp + rule->cfa_offset;
	if (rule && rule->cfa == LF_CFA_FP && (w->flags & WALK_FP_KNOWN))
		return w->fp + rule->cfa_offset;
	return ~0ULL;
}

/* Takes back what was pushed for this activation. */
static __always_inline void python_forget(struct scratch *s)
{
	s->walk.at = s->node[PYTHON_BEFORE];
	s->walk.hash = s->node[PYTHON_HASH];
	s->node[PYTHON_FRAMES] = 0;
}

/* One frame of the chain at scratch::node[PYTHON_NEXT]. 0: the next one is run by the same activation. */
static __always_inline int python_step(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *python = bpf_map_lookup_elem(&interpreters, &index);

	if (!s || !python)
		return 1;
	struct walk *w = &s->walk;
	__u64 frame = s->node[PYTHON_NEXT];
	__u32 kind = python->offsets[LF_PYTHON_KIND], bytes = python->offsets[LF_PYTHON_FRAME_BYTES];

	if (!frame) {
		/* The chain of an activation ends with a frame that says so. */
		if (kind == LF_PYTHON_DIRECT) {
			python_forget(s);
			w->interpreter_frame = PYTHON_END;
		}
		return 1;
	}
	if (!python_pointer(frame))
		return python_fail(w, LF_INTERPRETER_INCONSISTENT);
	if (bytes > PYTHON_FRAME_BYTES || read_user(w, s->buffer, bytes & (2 * PYTHON_FRAME_BYTES - 1), frame))
		return python_fail(w, LF_INTERPRETER_UNREADABLE);
	__u64 before = python_word(s, python, LF_PYTHON_FRAME_PREVIOUS), code = python_word(s, python, LF_PYTHON_FRAME_CODE), position;
	__u8 owner = s->buffer[python->offsets[LF_PYTHON_FRAME_OWNER] & 0x1ff];

	s->node[PYTHON_NEXT] = before;
	if (kind >= LF_PYTHON_SHIM && owner >= python->offsets[LF_PYTHON_OWNER_STACK]) {
		if (kind == LF_PYTHON_SHIM)
			return 1;
		if (frame >= s->node[PYTHON_TOP]) {
			/* This activation has no frames yet, or none any more. */
			python_forget(s);
			return 1;
		}
		w->interpreter_frame = before ? before : PYTHON_END;
		if (frame >= w->sp)
			return 1;
		/* An activation that was not seen ran these. */
		python_forget(s);
		return 0;
	}
	if (kind == LF_PYTHON_DIRECT)
		code &= ~7ULL; /* a tagged reference since 3.14 */
	if (!python_pointer(code))
		return python_fail(w, LF_INTERPRETER_INCONSISTENT);
	if (kind == LF_PYTHON_OBJECTS) {
		position = (__s32)python_half(s, python, LF_PYTHON_FRAME_INSTRUCTION);
		w->interpreter_frame = before ? before : PYTHON_END;
	} else
		position = python_word(s, python, LF_PYTHON_FRAME_INSTRUCTION) - code - python->offsets[LF_PYTHON_CODE_INSTRUCTIONS];
	if (!push_pair(s, LF_FRAME_PYTHON, code, position))
		return python_fail(w, LF_INTERPRETER_TOO_MANY);
	s->node[PYTHON_FRAMES]++;
	return kind == LF_PYTHON_OBJECTS || (kind == LF_PYTHON_ENTRY && owner);
}

static long python_callback(__u64 round, void *context)
{
	struct python_loop *loop = context;

	(void)round;
	return python_step(loop->slot, loop->index) ? 1 : 0;
}

__noinline int python_step_plain(__u32 slot, __u32 index)
{
	return python_step(slot, index);
}

/* 3.11 and 3.12: finds the _PyCFrame in the activation's native frame and the first of its frames. 0: found. */
__noinline int python_cframe(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *python = bpf_map_lookup_elem(&interpreters, &index);

	if (!s || !python)
		return 1;
	struct walk *w = &s->walk;

	for (int i = 0; i < PYTHON_SKIPS_MAX; i++) {
		__u64 at = w->interpreter_frame, before = 0;

		if (at <= PYTHON_END || at >= s->node[PYTHON_TOP])
			return 1;
		if (!python_pointer(at) || read_user(w, &before, sizeof(before), at + python->offsets[LF_PYTHON_CFRAME_PREVIOUS]))
			return python_fail(w, LF_INTERPRETER_UNREADABLE);
		w->interpreter_frame = before ? before : PYTHON_END;
		if (at < w->sp)
			continue; /* of an activation that was not seen */
		if (read_user(w, &s->node[PYTHON_NEXT], sizeof(__u64), at + python->offsets[LF_PYTHON_CFRAME_FRAME]))
			return python_fail(w, LF_INTERPRETER_UNREADABLE);
		return 0;
	}
	return 1;
}

/* The frames that the activation of the loop at the walk's current frame runs. */
__noinline int python_frames(__u32 slot, __u32 index)
{
	struct scratch *s = scratch_of(slot);
	struct lf_interpreter *python = bpf_map_lookup_elem(&interpreters, &index);
	struct lf_counters *c = own_counters(slot);

	if (!s || !python || !c)
		return 0;
	struct walk *w = &s->walk;
	__u32 kind = python->offsets[LF_PYTHON_KIND];

	if (!w->interpreter_frame) {
		if (python_begin(slot, index, s, python))
			return 0;
	} else if (w->interpreter_frame == PYTHON_GIVEN_UP || w->interpreter_state[2] != PYTHON_MINE)
		return 0; /* the second: the stack began in another language */
	if (w->interpreter_frame == PYTHON_END) {
		/*
		 * More activations than frames: the innermost has not made its frame known yet, or not any more, so all frames stand
		 * one activation too far to the leaf. User space puts them right (python::align).
		 */
		if (kind == LF_PYTHON_OBJECTS)
			push_pair(s, LF_FRAME_PYTHON, 0, 0);
		return 0;
	}
	s->node[PYTHON_BEFORE] = w->at;
	s->node[PYTHON_HASH] = w->hash;
	s->node[PYTHON_FRAMES] = 0;
	if (kind == LF_PYTHON_OBJECTS) {
		s->node[PYTHON_NEXT] = w->interpreter_frame;
		python_step_plain(slot, index);
		c->interpreter_frames++;
		return 0;
	}
	s->node[PYTHON_TOP] = python_top(slot, s);
	if (kind == LF_PYTHON_DIRECT)
		s->node[PYTHON_NEXT] = w->interpreter_frame;
	else if (python_cframe(slot, index))
		return 0;
	if (config.use_loop) {
		struct python_loop loop = { .slot = slot, .index = index };

		bpf_loop(LF_MAX_USER_FRAMES, python_callback, &loop, 0);
	} else
		for (int i = 0; i < LF_MAX_USER_FRAMES; i++)
			if (python_step_plain(slot, index))
				break;
	c->interpreter_frames += s->node[PYTHON_FRAMES];
	return 0;
}
