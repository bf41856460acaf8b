/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which file is mapped where. The kernel's own tree of mappings is read without locks: bpf_find_vma() may be called once per
 * interrupt only (its unlocking waits for the interrupt's end), and a copy in a map would have to follow each mmap of each process.
 * A tree that changes meanwhile can mislead a reader, never harm it: what is found must contain the address and belong to the process.
 */
#pragma once
#include "maps.h"

/* Nodes of the maple tree: lib/maple_tree.c, include/linux/maple_tree.h (the same since Linux 6.1). */
#define MAPLE_NODE_MASK 255ULL
#define MAPLE_TYPE_SHIFT 3
#define MAPLE_TYPE_MASK 15
#define MAPLE_RANGE_64 2
#define MAPLE_ARANGE_64 3
#define MAPLE_LEVELS 12
#define MAPLE_RANGE_PIVOTS 15
#define MAPLE_RANGE_SLOTS_AT 16 /* in words; pivots begin at word 1 */
#define MAPLE_ARANGE_SLOTS_AT 10
#define MAPLE_ARANGE_META_AT 30
#define MAPLE_RANGE_META_AT 31 /* overlays the last slot where there are less entries */
#define RB_LEVELS 40

/*
 * Index in scratch::node, a node of the given type, of what `address` belongs to. A function of its own for the verifier, to which the
 * result is then a number like any other; inlined, it followed each index through each level of the tree.
 */
__noinline int maple_index(__u32 slot, __u64 address, __u32 type)
{
	struct scratch *s = scratch_of(slot);
	__u32 slots = MAPLE_RANGE_SLOTS_AT, end, i;

	if (!s)
		return 0;
	if (type == MAPLE_ARANGE_64) {
		slots = MAPLE_ARANGE_SLOTS_AT;
		end = s->node[MAPLE_ARANGE_META_AT] & 0xff;
	} else
		end = s->node[MAPLE_RANGE_PIVOTS] ? MAPLE_RANGE_PIVOTS : s->node[MAPLE_RANGE_META_AT] & 0xff;
	for (i = 0; i < MAPLE_RANGE_PIVOTS; i++)
		if (i >= end || s->node[1 + i] >= address)
			break;
	return slots + i;
}

static __always_inline __u64 vma_in_maple_tree(__u32 slot, struct scratch *s, struct mm_struct *mm, __u64 address)
{
	__u64 node = (__u64)BPF_CORE_READ(mm, mm_mt.ma_root);

	if ((node & 3) != 2) /* xa_is_node(): else one mapping or none */
		return node & 3 ? 0 : node;
	for (int level = 0; level < MAPLE_LEVELS; level++) {
		__u32 type = (node >> MAPLE_TYPE_SHIFT) & MAPLE_TYPE_MASK;

		if (bpf_probe_read_kernel(s->node, sizeof(s->node), (void *)(node & ~MAPLE_NODE_MASK)))
			return 0;
		node = s->node[maple_index(slot, address, type) & 31];
		if (!node || type < MAPLE_RANGE_64) /* a leaf's slots are mappings */
			return node;
	}
	return 0;
}

static __always_inline __u64 vma_in_rb_tree(struct mm_struct *mm, __u64 address)
{
	struct mm_struct___rb *old = (void *)mm;
	struct rb_node *node = BPF_CORE_READ(old, mm_rb.rb_node);

	for (int level = 0; level < RB_LEVELS && node; level++) {
		__u64 vma = (__u64)node - bpf_core_field_offset(struct vm_area_struct___rb, vm_rb);

		if (address >= BPF_CORE_READ((struct vm_area_struct *)vma, vm_end))
			node = BPF_CORE_READ(node, rb_right);
		else if (address < BPF_CORE_READ((struct vm_area_struct *)vma, vm_start))
			node = BPF_CORE_READ(node, rb_left);
		else
			return vma;
	}
	return 0;
}

/* The names from a file up to the root, each NUL-terminated, into scratch::path. Returns their bytes. */
static __always_inline __u32 file_path(struct scratch *s, struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	struct vfsmount *in = BPF_CORE_READ(file, f_path.mnt);
	struct mount *mount = (void *)in - bpf_core_field_offset(struct mount, mnt);
	__u32 at = 0;

	for (int depth = 0; depth < 48; depth++) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);

		if (dentry == BPF_CORE_READ(mount, mnt.mnt_root) || dentry == parent) {
			struct mount *above = BPF_CORE_READ(mount, mnt_parent);

			if (above == mount)
				break;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = above;
			continue;
		}
		if (at >= LF_MAX_PATH_BYTES) {
			at = 0; /* too long: no path */
			break;
		}
		long bytes = bpf_probe_read_kernel_str(s->path + at, 256, BPF_CORE_READ(dentry, d_name.name));

		if (bytes <= 0)
			break;
		at += bytes & 0x1ff;
		dentry = parent;
	}
	return at > LF_MAX_PATH_BYTES ? 0 : at;
}

/* Of a file's content, as far as the inode tells. */
static __always_inline __u32 generation_of(struct inode *inode)
{
	struct inode___until_6_10 *until_6_10 = (void *)inode;
	struct inode___until_6_6 *until_6_6 = (void *)inode;
	__u64 changed = BPF_CORE_READ(inode, i_generation);

	if (bpf_core_field_exists(inode->i_mtime_sec))
		changed = mix(mix(changed, BPF_CORE_READ(inode, i_mtime_sec)), BPF_CORE_READ(inode, i_mtime_nsec));
	else if (bpf_core_field_exists(until_6_10->__i_mtime))
		changed = mix(mix(changed, BPF_CORE_READ(until_6_10, __i_mtime.tv_sec)), BPF_CORE_READ(until_6_10, __i_mtime.tv_nsec));
	else if (bpf_core_field_exists(until_6_6->i_mtime))
		changed = mix(mix(changed, BPF_CORE_READ(until_6_6, i_mtime.tv_sec)), BPF_CORE_READ(until_6_6, i_mtime.tv_nsec));
	return changed;
}

/* Tells user space of the file of segment `at`, once: the entry in `objects` is the mark. A function of its own for the verifier. */
__noinline int announce(__u32 slot, __u32 at, __u64 file)
{
	struct scratch *s = scratch_of(slot);
	struct lf_counters *c = own_counters(slot);

	if (!s || !c)
		return 0;
	struct lf_segment *segment = &s->segments[at & (LF_MAX_SEGMENTS - 1)];
	struct lf_object_key key = {
		.inode = segment->inode,
		.device = segment->device,
		.generation = segment->generation,
	};
	struct lf_object fresh = { .state = LF_OBJECT_ANNOUNCED, .used_ns = s->walk.now_ns, .missed = 1 };

	if (bpf_map_update_elem(&objects, &key, &fresh, BPF_NOEXIST)) {
		c->objects_unannounced++;
		return 0;
	}
	s->seen.entry = LF_ENTRY_OBJECT;
	s->seen.pid = s->walk.pid;
	s->seen.segment = *segment;
	s->seen.path_bytes = file ? file_path(s, (struct file *)file) : 0;

	__u64 bytes = sizeof(s->seen) + s->seen.path_bytes;

	if (bytes > sizeof(s->seen) + LF_MAX_PATH_BYTES) /* cannot be: for the verifier */
		return 0;
	/* Wakes user space at once: until the object is ready, stacks end in it. */
	if (bpf_ringbuf_output(&records, &s->seen, bytes, BPF_RB_FORCE_WAKEUP)) {
		bpf_map_delete_elem(&objects, &key);
		c->objects_unannounced++;
	}
	return 0;
}

/* Makes an executable mapping number `at` of the walk, and announces its file if it is new. */
static __always_inline void enter_segment(__u32 slot, struct scratch *s, struct vm_area_struct *vma, __u32 at)
{
	struct walk *w = &s->walk;
	struct lf_segment *segment = &s->segments[at & (LF_MAX_SEGMENTS - 1)];
	struct segment_table *table = &s->tables[at & (LF_MAX_SEGMENTS - 1)];
	struct file *file = BPF_CORE_READ(vma, vm_file);
	struct lf_object_key key = {};

	segment->start = BPF_CORE_READ(vma, vm_start);
	segment->end = BPF_CORE_READ(vma, vm_end);
	segment->file_offset = 0;
	segment->inode = 0;
	segment->device = 0;
	segment->generation = 0;
	segment->object = 0;
	__builtin_memset(table, 0, sizeof(*table));
	table->state = LF_OBJECT_NO_TABLE;
	if (file) {
		struct inode *inode = BPF_CORE_READ(file, f_inode);

		segment->file_offset = BPF_CORE_READ(vma, vm_pgoff) << config.page_shift;
		segment->inode = BPF_CORE_READ(inode, i_ino);
		segment->device = BPF_CORE_READ(inode, i_sb, s_dev);
		segment->generation = generation_of(inode);
	} else if (segment->start == w->vdso)
		segment->device = LF_VDSO_DEVICE;
	key.inode = segment->inode;
	key.device = segment->device;
	key.generation = segment->generation;
	if (key.inode || key.device) {
		struct lf_object *object = bpf_map_lookup_elem(&objects, &key);

		if (object) {
			object->used_ns = w->now_ns;
			segment->object = object->id;
			table->state = object->state;
			table->first_page = object->first_page;
			table->pages = object->pages;
			table->page_base = object->page_base;
			table->interpreter = object->interpreter;
			if (object->state == LF_OBJECT_ANNOUNCED)
				object->missed++;
		} else {
			table->state = LF_OBJECT_ANNOUNCED;
			announce(slot, at, (__u64)file);
		}
	}
}

/* The walk passes through segment `at` for the first time: a part of what makes its stack another one. */
static __always_inline void meet_segment(struct scratch *s, __u32 at)
{
	struct lf_segment *segment = &s->segments[at & (LF_MAX_SEGMENTS - 1)];
	struct walk *w = &s->walk;

	w->met |= 1U << (at & (LF_MAX_SEGMENTS - 1));
	w->hash = mix(mix(w->hash, segment->start), segment->inode ^ segment->generation);
}

/* How long segments are kept: user space wants to know which objects are in use. */
#define SEGMENTS_KEPT_NS 1000000000ULL

/* A number that changes with the mappings of a process; 0 if the kernel has none, or is changing them. */
static __always_inline __u32 mappings_version(struct mm_struct *mm)
{
	struct mm_struct___sequence *sequence = (void *)mm;
	struct mm_struct___number *number = (void *)mm;
	__u32 version = 0;

	if (bpf_core_field_exists(sequence->mm_lock_seq.sequence)) {
		version = BPF_CORE_READ(sequence, mm_lock_seq.sequence);
		return version & 1 ? 0 : version;
	}
	if (bpf_core_field_exists(number->mm_lock_seq))
		version = BPF_CORE_READ(number, mm_lock_seq);
	return version;
}

static __always_inline struct segment_set *segment_set(__u32 slot, __u64 mm)
{
	struct segment_sets *all = bpf_map_lookup_elem(&segment_sets, &slot);

	return all ? &all->sets[(mm * 0x9e3779b97f4a7c15ULL) >> (64 - SEGMENT_SET_BITS)] : NULL;
}

/*
 * Begins a walk with the segments of an earlier one in this slot, if they are those of the same process and nothing has changed. A function
 * of its own: its stack is given back before the walk begins.
 */
__noinline int reuse_segments(__u32 slot)
{
	struct scratch *s = scratch_of(slot);
	__u32 zero = 0;

	if (!s)
		return 0;
	struct walk *w = &s->walk;
	struct segment_set *set = segment_set(slot, w->mm);

	if (!set)
		return 0;
	__u32 version = mappings_version((void *)w->mm), count = set->count;
	__u64 *changes = bpf_map_lookup_elem(&objects_changed, &zero), now_changes = changes ? *changes : 0;

	w->met = 0;
	w->segments = 0;
	if (version && version == set->lock_seq && w->mm == set->mm && s->record.process_start_ns == set->process_start_ns &&
	    s->record.exec_id == set->exec_id && now_changes == set->changes && w->now_ns - set->since_ns < SEGMENTS_KEPT_NS) {
		for (__u32 i = 0; i < SEGMENTS_KEPT && i < count; i++) {
			s->segments[i] = set->segments[i];
			s->tables[i] = set->tables[i];
		}
		w->segments = count;
		return 0;
	}
	set->lock_seq = version;
	set->mm = w->mm;
	set->process_start_ns = s->record.process_start_ns;
	set->exec_id = s->record.exec_id;
	set->changes = now_changes;
	set->since_ns = w->now_ns;
	set->count = 0;
	return 0;
}

/* Keeps those that are new for the next walk, unless one of them is being prepared: who asks for it is counted. */
__noinline int keep_segments(__u32 slot)
{
	struct scratch *s = scratch_of(slot);

	if (!s)
		return 0;
	struct segment_set *set = segment_set(slot, s->walk.mm);

	if (!set)
		return 0;
	__u32 count = s->walk.segments, known = set->count;

	if (count == known || count > SEGMENTS_KEPT || s->walk.outcome == LF_NO_ROWS_YET)
		return 0;
	for (__u32 i = 0; i < SEGMENTS_KEPT && i < count; i++)
		if (i >= known) {
			set->segments[i] = s->segments[i];
			set->tables[i] = s->tables[i];
		}
	set->count = count;
	return 0;
}

/* The mapping (struct vm_area_struct *) that `address` lies in or below; 0 if there is none or it cannot be read. */
static __always_inline __u64 mapping_at(__u32 slot, struct scratch *s, struct mm_struct *mm, __u64 address)
{
	if (bpf_core_field_exists(mm->mm_mt))
		return vma_in_maple_tree(slot, s, mm, address);
	if (bpf_core_field_exists(((struct mm_struct___rb *)mm)->mm_rb))
		return vma_in_rb_tree(mm, address);
	return 0;
}

/* Bytes from the walk's first stack pointer to the end of its mapping, at most LF_FAILED_STACK_BYTES. */
__noinline int stack_bytes(__u32 slot)
{
	struct scratch *s = scratch_of(slot);

	if (!s)
		return 0;
	struct mm_struct *mm = (void *)s->start.mm;
	struct vm_area_struct *vma = (void *)mapping_at(slot, s, mm, s->start.sp);

	if (!vma)
		return 0;
	__u64 start = BPF_CORE_READ(vma, vm_start), end = BPF_CORE_READ(vma, vm_end), bytes = end - s->start.sp;

	if (s->start.sp < start || s->start.sp >= end)
		return 0;
	return bytes < LF_FAILED_STACK_BYTES ? bytes : LF_FAILED_STACK_BYTES;
}

enum found {
	FOUND = 0,
	FOUND_NOTHING = 1,    /* no executable mapping there */
	FOUND_UNREADABLE = 2, /* the tree could not be read */
};

/*
 * Looks `address` up in the mappings of the walk's process and makes it the walk's current segment. A function of its own for the
 * verifier, which then looks at it once, not at each call.
 */
__noinline int find_segment(__u32 slot, __u64 address)
{
	struct scratch *s = scratch_of(slot);
	struct lf_counters *c = own_counters(slot);

	if (!s || !c)
		return FOUND_UNREADABLE;
	struct walk *w = &s->walk;
	__u32 known = w->segments;

	for (__u32 i = 0; i < LF_MAX_SEGMENTS && i < known; i++)
		if (address >= s->segments[i].start && address < s->segments[i].end) {
			w->segment = i;
			if (!(w->met & (1U << i)))
				meet_segment(s, i);
			return FOUND;
		}

	struct mm_struct *mm = (void *)w->mm;
	__u64 found = mapping_at(slot, s, mm, address);

	c->mappings_walked++;
	if (!found)
		return FOUND_NOTHING;

	struct vm_area_struct *vma = (void *)found;
	__u64 start = BPF_CORE_READ(vma, vm_start), end = BPF_CORE_READ(vma, vm_end);

	if (BPF_CORE_READ(vma, vm_mm) != mm)
		return FOUND_UNREADABLE;
	if (address < start || address >= end || !(BPF_CORE_READ(vma, vm_flags) & VM_EXEC))
		return FOUND_NOTHING;

	/* More objects than have room: the last place is used again, so the stack goes on; user space asks /proc for the lost ones. */
	__u32 at = known < LF_MAX_SEGMENTS ? known : LF_MAX_SEGMENTS - 1;

	enter_segment(slot, s, vma, at);
	meet_segment(s, at);
	w->segments = at + 1;
	w->segment = at;
	return FOUND;
}
