/* green: threads switched by a dozen instructions of the program's own, on stacks from mmap. Two kinds of root: green_marked,
 * whose entry says in its unwind information that nobody called it, and green_bare, whose entry has none and finds a return
 * address of zero. green_body;green_leaf 40 % each under one of the two, main;rotate;rotate_leaf 20 %. */
#include "corpus.h"

DEFINE_LEAF(green_leaf)
DEFINE_LEAF(rotate_leaf)

static volatile uint64_t sink, unit_now;
static void *home_sp, *green_sp[2];

/* Saves what a callee must keep, stores the stack pointer in *from, continues at `to`. */
void switch_stack(void **from, void *to);
void green_marked(void), green_bare(void);
#if defined(__x86_64__)
__asm__(".text\n.p2align 4\n.globl switch_stack\n.type switch_stack,@function\nswitch_stack:\n.cfi_startproc\n"
	"push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp,0\n"
	"push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"push %r12\n.cfi_adjust_cfa_offset 8\npush %r13\n.cfi_adjust_cfa_offset 8\n"
	"push %r14\n.cfi_adjust_cfa_offset 8\npush %r15\n.cfi_adjust_cfa_offset 8\n"
	"mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
	"pop %r15\n.cfi_adjust_cfa_offset -8\npop %r14\n.cfi_adjust_cfa_offset -8\n"
	"pop %r13\n.cfi_adjust_cfa_offset -8\npop %r12\n.cfi_adjust_cfa_offset -8\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbp\nret\n"
	".cfi_endproc\n.size switch_stack, .-switch_stack\n"
	".p2align 4\n.globl green_marked\n.type green_marked,@function\ngreen_marked:\n.cfi_startproc\n.cfi_undefined %rip\n"
	"mov %r12, %rdi\ncall green_body\nhlt\n.cfi_endproc\n.size green_marked, .-green_marked\n"
	/* No directives: the code of people who write such things in a hurry. rbp is 0 here, so that even a debugger stops. */
	".p2align 4\n.globl green_bare\n.type green_bare,@function\ngreen_bare:\n"
	"push $0\npush $0\nmov %rsp, %rbp\nmov %r12, %rdi\ncall green_body\nhlt\n.size green_bare, .-green_bare\n");
#else
#error "written for x86-64"
#endif

FUNCTION void green_body(uint64_t number)
{
	for (;;) {
		sink += green_leaf(40 * unit_now, sink);
		RUBBISH;
		switch_stack(&green_sp[number], home_sp);
	}
}

FUNCTION void rotate(uint64_t unit)
{
	unit_now = unit;
	for (int i = 0; i < 2; i++)
		switch_stack(&home_sp, green_sp[i]);
	sink += rotate_leaf(20 * unit, sink);
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	for (uint64_t i = 0; i < 2; i++) {
		char *stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stack == MAP_FAILED)
			die("mmap");
		uint64_t *top = (uint64_t *)(stack + (1 << 16)) - 8;
		memset(top, 0, 64);
		top[3] = i;                                                       /* r12 */
		top[6] = (uint64_t)(uintptr_t)(i == 0 ? green_marked : green_bare); /* return address of switch_stack */
		green_sp[i] = top;
	}
	for (uint64_t unit; (unit = next_turn(&course));)
		rotate(unit);
	return done("green", &course);
}
