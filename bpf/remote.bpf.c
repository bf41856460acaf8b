// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Finds out how the kernel maps memory, by trying: no symbol says where the linear mapping begins on a kernel without
 * CONFIG_KALLSYMS_ALL. A page table is kernel memory, so mm->pgd lies in the linear mapping, which begins a whole number of GiB below.
 * User space asks for one batch of guesses after the other; right is the one by which a number that it wrote into its own memory is
 * found. Reads of addresses that mean nothing fail without harm (bpf_probe_read_kernel).
 */
#include "remote.h"

/* One batch. Mirror: crates/kernel/src/remote.rs. */
struct lf_guess {
	struct paging paging; /* page_offset: the answer; 0 going in */
	__u64 address;        /* of the number, in the caller's memory */
	__u64 number;
	__u64 first; /* first guess: where pgd lies, rounded down to 1 GiB, less so many GiB */
};
_Static_assert(sizeof(struct lf_guess) == 48, "keep in step with remote.rs");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lf_guess);
} guesses SEC(".maps");

#define GUESSES 64
#define LINEAR_ALIGNMENT_SHIFT 30 /* PUD_SIZE: kernel_randomize_memory(), arch/x86/mm/kaslr.c */

/* Tries one guess; whether it is right. A function of its own for the verifier. */
__noinline int is_right(__u64 step)
{
	__u32 zero = 0;
	struct lf_guess *guess = bpf_map_lookup_elem(&guesses, &zero);
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 pgd = (__u64)BPF_CORE_READ(mm, pgd), read = 0;

	if (!guess)
		return 0;
	struct paging paging = guess->paging;

	paging.page_offset = ((pgd >> LINEAR_ALIGNMENT_SHIFT) - step) << LINEAR_ALIGNMENT_SHIFT;
	__u64 at = kernel_address(mm, guess->address, &paging);

	if (!at || bpf_probe_read_kernel(&read, sizeof(read), (void *)at) || read != guess->number)
		return 0;
	guess->paging.page_offset = paging.page_offset;
	return 1;
}

SEC("raw_tp/sched_process_exit")
int find_linear_mapping(void *context)
{
	__u32 zero = 0;
	struct lf_guess *guess = bpf_map_lookup_elem(&guesses, &zero);

	(void)context;
	if (!guess)
		return 0;
	for (__u64 i = 0; i < GUESSES; i++)
		if (is_right(guess->first + i))
			break;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
