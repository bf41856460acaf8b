/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The maps, and what a walk keeps between two steps. Sizes marked "set" are given by user space before load. */
#pragma once
#include "core_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "lightfoot.h"

const volatile struct lf_config config = {};

/* Rows by CPU number * LF_SLOTS + slot; set to the number of possible CPUs; mapped into user space's memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LF_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_live);
} live SEC(".maps");

/* Stacks seen: lf_record::stack -> lf_count. Set. Full: further new stacks go through the ring each time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct lf_count);
} counts SEC(".maps");

/* enum lf_entry. Set. Full: the sample is lost and counted so. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Wanted processes by process id (LF_TARGET_PROCESSES). Set. Full: further children are not followed, and counted. */
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

/* --- unwind tables, written by user space --------------------------------------------------------------------------------- */

/* Set. Full: further files are not announced, and counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct lf_object_key);
	__type(value, struct lf_object);
} objects SEC(".maps");

/* Set; mapped into user space's memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_page);
} pages SEC(".maps");

/* Set; mapped into user space's memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct lf_rule);
} rules SEC(".maps");

/* Packed rows. One element: a search then reads memory, not map entries. Made by user space when it needs one. */
struct bank {
	__u32 rows[LF_BANK_ROWS];
};

struct bank_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	/* Sizes, not types: clang writes only a forward declaration of a type behind a pointer. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bank));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LF_BANKS);
	__type(key, __u32);
	__array(values, struct bank_map);
} banks SEC(".maps");

/* Counts the changes that user space makes to `objects`: what was read of it before holds as long as this is the same. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} objects_changed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct lf_interpreter);
} interpreters SEC(".maps");

/* --- one CPU's, one slot's ------------------------------------------------------------------------------------------------ */

#define MAX_WORDS (LF_MAX_KERNEL_FRAMES + LF_MAX_USER_FRAMES)
#define SEGMENT_WORDS (sizeof(struct lf_segment) / sizeof(__u64))
/* DWARF numbers of x86-64; arm64 keeps the link register (0) and x0 (1) only. */
#define WALK_REGISTERS 16

enum walk_flags {
	WALK_EXACT = 1,         /* ip is an instruction's address, not a return address */
	WALK_ALL_REGISTERS = 2, /* `registers` is valid */
	WALK_FP_KNOWN = 4,
	WALK_BX_KNOWN = 8,
	WALK_GUESSED = 16,  /* ip was found by a frame pointer that nobody vouches for */
	WALK_STARTED = 32,  /* not the leaf any more */
	WALK_USER_PART = 128, /* there is a user stack to walk */
	WALK_REMOTE = 64,   /* another task's memory: read through its page tables */
};

/* A walk between two steps. */
struct walk {
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u64 bx;
	__u64 task; /* struct task_struct * whose stack it is */
	__u64 mm;
	__u64 vdso; /* where the vDSO is mapped; 0: nowhere */
	__u64 hash;
	__u64 now_ns;
	__u32 flags;
	__u32 at;     /* next index in scratch::words */
	__u32 limit;  /* index that is not to be reached */
	__u32 outcome;
	__u32 segments;
	__u32 segment; /* the last that was found */
	__u32 met;     /* bits of the segments that this walk passed through */
	__u32 reserved;
	__u32 pid;
	__u32 interpreter_outcome;
	__u32 searched; /* rules found by search */
	__u32 cached;   /* rules found in the cache */
	__u64 registers[WALK_REGISTERS];
	/* The interpreter's own: where its frames go on at the next activation of its loop; 0 before the first one. */
	__u64 interpreter_frame;
	__u64 interpreter_state[3];
	/* WALK_REMOTE: the page of the process that was read last, and where the kernel sees it. */
	__u64 remote_page;
	__u64 remote_at;
};

/* What a segment's object says, beside lf_segment. */
struct segment_table {
	__u32 state;
	__u32 first_page;
	__u32 pages;
	__u32 page_base;
	__u32 interpreter;
	__u32 reserved;
};

/* Most bytes that are read at once of another task's memory. */
#define REMOTE_READ_MAX 512

/*
 * Rules found lately, one word each: a walk through cold memory touches one line for each frame. An object's number is never used again:
 * nothing here gets wrong.
 */
#define CACHE_BITS 10
#define CACHE_SLOTS (1 << CACHE_BITS)
struct rule_cache {
	__u64 entries[CACHE_SLOTS]; /* object << 48 | file offset << 16 | rule; 0: none */
};

/*
 * Segments of an earlier walk, and what makes them those of the next one, too: the same program of the same process with the same mappings,
 * and nothing new about their files.
 */
#define SEGMENTS_KEPT 16 /* of a process: a walk has room for as many again */
#define SEGMENT_SET_BITS 3
struct segment_set {
	__u64 process_start_ns;
	__u64 exec_id;
	__u64 mm;
	__u64 changes; /* in objects_changed */
	__u64 since_ns;
	__u32 lock_seq;
	__u32 count;
	struct lf_segment segments[SEGMENTS_KEPT];
	struct segment_table tables[SEGMENTS_KEPT];
};

struct scratch {
	struct lf_record record;
	__u64 words[MAX_WORDS + LF_MAX_SEGMENTS * SEGMENT_WORDS];
	struct lf_segment segments[LF_MAX_SEGMENTS];
	struct segment_table tables[LF_MAX_SEGMENTS];
	struct walk walk;
	struct walk start; /* what the walk began with: sent if it cannot be ended here */
	/* Where the Ruby of the process was that was last seen to run one. */
	struct {
		__u64 process_start_ns;
		__u64 exec_id;
		__u64 base; /* what its symbols are relative to */
		__u64 code_start;
		__u64 code_end;
		__u32 index; /* in `interpreters` */
		__u32 reserved;
	} ruby_of;
	__u64 prompted_ns; /* when a stack last woke user space because of lf_live::prompt */
	struct rule_cache cache;
	__u64 node[32]; /* of the tree of mappings */
	struct lf_object_seen seen;
	char path[LF_MAX_PATH_BYTES + 256];
	__u8 buffer[512]; /* free for each function's own use */
	__u8 bounce[2 * REMOTE_READ_MAX]; /* read_remote()'s; twice, for the verifier */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LF_SLOTS);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* Of the processes seen lately, by their memory. A map of its own: a value of one CPU may have 32 KiB. */
struct segment_sets {
	struct segment_set sets[1 << SEGMENT_SET_BITS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LF_SLOTS);
	__type(key, __u32);
	__type(value, struct segment_sets);
} segment_sets SEC(".maps");

static __always_inline struct scratch *scratch_of(__u32 slot)
{
	return bpf_map_lookup_elem(&scratch, &slot);
}

static __always_inline struct lf_counters *own_counters(__u32 slot)
{
	__u32 row = bpf_get_smp_processor_id() * LF_SLOTS + slot;

	return bpf_map_lookup_elem(&counters, &row);
}

/* One step of a multiply-xor hash. Stacks that collide (2^-64 each pair) would be counted as one. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/* Books the run of a program that began at `start`; with the counter as it was then, which tells whether it recorded a sample. */
static __always_inline void book_run(struct lf_counters *c, __u64 start, __u64 recorded)
{
	__u64 ns = bpf_ktime_get_ns() - start, rest = ns;
	__u32 power = 0, bucket = 0;

	c->run_ns += ns;
	if (c->recorded == recorded)
		return;
	for (int step = 16; step; step /= 2)
		if (rest >> step) {
			rest >>= step;
			power += step;
		}
	if (power >= LF_RUN_TIMES_FROM)
		bucket = (power - LF_RUN_TIMES_FROM) * 4 + ((ns >> (power - 2)) & 3);
	if (bucket >= LF_RUN_TIMES)
		bucket = LF_RUN_TIMES - 1;
	c->run_times[bucket & (LF_RUN_TIMES - 1)]++;
}
