/* nofp [--seconds S] (compiled with -fomit-frame-pointer)
 *
 * nofp_hot uses the frame pointer register as a counter, as optimised code may: a walk along frame pointers finds nofp_hot and then
 * rubbish, one by unwind rows finds the whole stack: main, nofp_outer, nofp_hot.
 */
#include "program.h"

HOT uint64_t nofp_hot(uint64_t iterations)
{
	uint64_t left = iterations;
#if defined(__x86_64__)
	__asm__ volatile("mov $0x12345, %%ebp\n"
			 "1: lea 2(%%rbp), %%rbp\n"
			 "and $0xfffff, %%ebp\n"
			 "dec %0\n"
			 "jnz 1b\n"
			 : "+r"(left)
			 :
			 : "rbp", "cc");
#else
	__asm__ volatile("mov x29, #0x12345\n"
			 "1: add x29, x29, #2\n"
			 "and x29, x29, #0xfffff\n"
			 "subs %0, %0, #1\n"
			 "b.ne 1b\n"
			 : "+r"(left)
			 :
			 : "x29", "cc");
#endif
	return left;
}

NOINLINE uint64_t nofp_outer(double seconds)
{
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), x = 0;
	while (wall_ns() < end)
		x += nofp_hot(1000000);
	return x;
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 30));
	volatile uint64_t sink = nofp_outer(seconds);
	(void)sink;
	printf("{\"program\":\"nofp\",\"pid\":%d,\"cpu_ns\":%lu}\n", getpid(), process_cpu_ns());
	return 0;
}
