/* deep N [--seconds S]
 *
 * A stack of exactly N + 3 user frames, root first: root_of_stack, enter, N x descend, deep_leaf. The hot loop is in
 * deep_leaf, which runs some 50 us per call of the chain's last frame; the chain itself is built once, so the share of
 * samples in deep_leaf is 100 %.
 */
#include "program.h"

static double seconds;
static uint64_t iterations;

HOT uint64_t deep_leaf(uint64_t x)
{
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9);
	do {
		x = spin(1000000, x);
		iterations += 1000000;
	} while (wall_ns() < end);
	return x;
}

NOINLINE uint64_t descend(uint64_t depth, uint64_t x)
{
	x = depth <= 1 ? deep_leaf(x) : descend(depth - 1, x);
	__asm__ volatile("" : "+r"(x)); /* no tail call */
	return x + 1;
}

NOINLINE uint64_t enter(void *argument)
{
	uint64_t x = descend(*(uint64_t *)argument, 88172645463325252u);
	__asm__ volatile("" : "+r"(x));
	return x;
}

int main(int argc, char **argv)
{
	uint64_t depth = argc > 1 ? strtoull(argv[1], NULL, 10) : 30;
	seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 30));
	if (depth < 1 || depth > 50000)
		return 97;
	volatile uint64_t sink = root_of_stack(enter, &depth);
	(void)sink;
	printf("{\"program\":\"deep\",\"pid\":%d,\"depth\":%lu,\"frames\":%lu,\"iterations\":%lu,\"cpu_ns\":%lu}\n", getpid(), depth,
	       depth + 3, iterations, process_cpu_ns());
	return 0;
}
