/* manystacks [--bits B] [--seconds S]
 *
 * Walks a binary tree of calls, branch_a or branch_b by the bits of a counter, B levels deep (default 14: 16,384 distinct
 * stacks), with branch_leaf at the bottom: more distinct stacks than any table should have to hold.
 */
#include "program.h"

static uint64_t leaves;

HOT uint64_t branch_leaf(uint64_t x)
{
	leaves++;
	x = spin(20000, x);
	__asm__ volatile("" ::: "memory");
	return x;
}

NOINLINE uint64_t branch_b(uint64_t bits, int levels, uint64_t x);
NOINLINE uint64_t branch_a(uint64_t bits, int levels, uint64_t x)
{
	x = levels == 0 ? branch_leaf(x) : bits & 1 ? branch_b(bits >> 1, levels - 1, x) : branch_a(bits >> 1, levels - 1, x);
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}
NOINLINE uint64_t branch_b(uint64_t bits, int levels, uint64_t x)
{
	x = levels == 0 ? branch_leaf(x) : bits & 1 ? branch_b(bits >> 1, levels - 1, x) : branch_a(bits >> 1, levels - 1, x);
	__asm__ volatile("" : "+r"(x));
	return x + 2;
}

static double seconds;
static int levels;

NOINLINE uint64_t walk(void *argument)
{
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), x = 1, random = (uint64_t)(uintptr_t)argument;
	while (wall_ns() < end) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		x = branch_a(random >> 20, levels, x);
	}
	return x;
}

int main(int argc, char **argv)
{
	seconds = number(argc, argv, "--seconds", 5);
	levels = (int)number(argc, argv, "--bits", 14);
	watchdog((unsigned)(seconds + 30));
	if (levels < 1 || levels > 40)
		return 97;
	volatile uint64_t sink = root_of_stack(walk, (void *)1);
	(void)sink;
	printf("{\"program\":\"manystacks\",\"pid\":%d,\"leaves\":%lu,\"cpu_ns\":%lu}\n", getpid(), leaves, process_cpu_ns());
	return 0;
}
