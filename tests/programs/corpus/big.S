/* 400,000 functions of 256 bytes with unwind information each: 100 MB of code. big_chain is the first; each 4,000th calls the one 4,000
 * further on, so that a stack through all of them touches the whole file; the last calls big_leaf of big.c. */
#if defined(__x86_64__)
	.altmacro
	.text
	.globl big_chain
	.set step, 4000
	.set all, 400000
	.macro one number
	.p2align 8
	.cfi_startproc
	.if \number % step == 0
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	sub $(16 * (1 + \number / step % 7)), %rsp
	.cfi_adjust_cfa_offset 16 * (1 + \number / step % 7)
	mov $0x5a58, %ebp
	.if \number + step < all
	call big_chain + (\number + step) * 256
	.else
	call big_leaf
	.endif
	add $(16 * (1 + \number / step % 7)), %rsp
	.cfi_adjust_cfa_offset -16 * (1 + \number / step % 7)
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	.else
	push %r12
	.cfi_adjust_cfa_offset 8
	sub $(8 * (\number % 100)), %rsp
	.cfi_adjust_cfa_offset 8 * (\number % 100)
	add $(8 * (\number % 100)), %rsp
	.cfi_adjust_cfa_offset -8 * (\number % 100)
	pop %r12
	.cfi_adjust_cfa_offset -8
	.endif
	ret
	.cfi_endproc
	.endm
	.p2align 8
	.type big_chain, @function
big_chain:
	.set counter, 0
	.rept all
	one %counter
	.set counter, counter + 1
	.endr
	.size big_chain, . - big_chain
#else
#error "written for x86-64"
#endif
	.section .note.GNU-stack, "", @progbits
