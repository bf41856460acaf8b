/* tiny: functions so small that most samples hit a prologue or an epilogue: main;tree;fib;fib...; main;calls;push_pop through a
 * pointer; main;calls;bare, a leaf without a frame. */
#include "corpus.h"

FUNCTION uint64_t fib(uint64_t n)
{
	if (n < 2)
		return n;
	uint64_t a = fib(n - 1);
	uint64_t b = fib(n - 2);
	return a + b;
}

FUNCTION uint64_t bare(uint64_t x) { return x * 3 + 1; }

/* Keeps every register that a callee must keep. */
FUNCTION uint64_t push_pop(uint64_t x)
{
#if defined(__x86_64__)
	__asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory");
#endif
	RUBBISH;
	return x ^ 5;
}

FUNCTION uint64_t tree(uint64_t unit)
{
	uint64_t x = fib(10 + unit % 4);
	STAY;
	return x;
}

FUNCTION uint64_t calls(uint64_t unit, uint64_t (*volatile *functions)(uint64_t))
{
	uint64_t x = unit;
	for (uint64_t i = 0; i < 10 * unit; i++)
		x = functions[i % 2](x);
	STAY;
	return x;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	uint64_t (*volatile functions[2])(uint64_t) = { bare, push_pop };
	volatile uint64_t sink = 0;
	for (uint64_t unit; (unit = next_turn(&course));) {
		sink += tree(unit);
		sink += calls(unit, functions);
	}
	return done("tiny", &course);
}
