/* lost --how cycle|pair|void|kernel|odd|data|zero: code of its own making in anonymous memory (no unwind information: walked by frame
 * pointers) burns CPU while its frame pointer leads astray: to itself; to a pair that point at each other; into nothing; into the
 * kernel's half; to an odd address; to a frame whose return address is data; to a frame with a return address of zero, which is the end of
 * a stack. No caller may be invented, and no walk may go on for ever. */
#include "corpus.h"

#if defined(__x86_64__)
/* push rbp; mov rbp, rsi; 1: dec rdi; jnz 1b; pop rbp; ret */
static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xf5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3 };
#else
#error "written for x86-64"
#endif

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	const char *how = option(argc, argv, "--how", "cycle");
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		die("mmap");
	memcpy(page, code, sizeof code);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		die("mprotect");
	/* Two frames of [saved frame pointer, return address], above everything that follows on the stack. */
	uint64_t frames[8] = { 0 };
	uint64_t first = (uint64_t)(uintptr_t)&frames[0], second = (uint64_t)(uintptr_t)&frames[4];
	uint64_t inside = (uint64_t)(uintptr_t)page + 4, pointer = first;
	frames[1] = frames[5] = inside;
	if (strcmp(how, "cycle") == 0) {
		frames[0] = first;
	} else if (strcmp(how, "pair") == 0) {
		frames[0] = second;
		frames[4] = first;
	} else if (strcmp(how, "void") == 0) {
		pointer = 0x7000;
	} else if (strcmp(how, "kernel") == 0) {
		pointer = 0xffffffff81000000u;
	} else if (strcmp(how, "odd") == 0) {
		pointer = first + 3;
	} else if (strcmp(how, "data") == 0) {
		frames[0] = second;
		frames[1] = second;
	} else {
		frames[0] = 0;
		frames[1] = 0;
	}
	__asm__ volatile("" : : "r"(frames) : "memory");
	void (*spin_astray)(uint64_t, uint64_t) = (void (*)(uint64_t, uint64_t))(uintptr_t)page;
	while (next_turn(&course))
		spin_astray(50000, pointer);
	return done("lost", &course);
}
