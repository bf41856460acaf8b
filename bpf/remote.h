/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Memory of a task that is not running: its address is translated as the CPU would do it, through the page tables of its mm, and read
 * in the kernel's linear mapping of all memory. Pages that are not in memory cannot be read; nothing is ever faulted in.
 * Layout: Intel SDM volume 3, section 5.5; arch/x86/include/asm/pgtable_types.h. x86-64 only.
 */
#pragma once
#include "core_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define REMOTE_PAGE_SHIFT 12
#define REMOTE_PAGE_BYTES (1ULL << REMOTE_PAGE_SHIFT)
#define PTE_PRESENT (1ULL << 0)
#define PTE_HUGE (1ULL << 7)
/* Not present for the CPU, but in memory: mprotect(PROT_NONE), and pages whose NUMA node is being found out. */
#define PTE_PROTNONE (1ULL << 8)

/* How the kernel maps memory. Found by trying: crates/kernel/src/remote.rs. */
struct paging {
	__u64 page_offset;
	__u64 physical_mask;
	__u32 levels;
};

#if defined(__TARGET_ARCH_x86)
/* Where the kernel sees the byte that has `address` in `mm`; 0 if it is not in memory. */
static __always_inline __u64 kernel_address(struct mm_struct *mm, __u64 address, const struct paging *paging)
{
	__u64 table = (__u64)BPF_CORE_READ(mm, pgd), entry = 0;
	__u32 shift = paging->levels == 5 ? 48 : 39;

	if (address >> (shift + 8)) /* the upper half is the kernel's */
		return 0;
	for (int level = 0; level < 5; level++) {
		if (bpf_probe_read_kernel(&entry, sizeof(entry), (void *)(table + ((address >> shift) & 511) * sizeof(entry))))
			return 0;
		if (!(entry & PTE_PRESENT)) {
			/* The kernel inverts such addresses (L1TF): arch/x86/include/asm/pgtable-invert.h. */
			if (shift != REMOTE_PAGE_SHIFT || !(entry & PTE_PROTNONE))
				return 0;
			entry = ~entry;
		}
		__u64 physical = entry & paging->physical_mask & ~(REMOTE_PAGE_BYTES - 1);

		if (shift == REMOTE_PAGE_SHIFT)
			return paging->page_offset + physical + (address & (REMOTE_PAGE_BYTES - 1));
		if ((entry & PTE_HUGE) && shift <= 30) {
			__u64 inside = (1ULL << shift) - 1;

			return paging->page_offset + (physical & ~inside) + (address & inside);
		}
		table = paging->page_offset + physical;
		shift -= 9;
	}
	return 0;
}
#else
static __always_inline __u64 kernel_address(struct mm_struct *mm, __u64 address, const struct paging *paging)
{
	(void)mm;
	(void)address;
	(void)paging;
	return 0;
}
#endif
