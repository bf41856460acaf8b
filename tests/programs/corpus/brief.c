/* brief [--ms M]: main;brief_outer;brief_leaf for M ms of CPU time (default 3) and leaves: what storms of short processes run. */
#include "corpus.h"

LEAF uint64_t brief_leaf(uint64_t cpu_ns)
{
	uint64_t x = 88172645463325252u;
	do
		x = burn(5000, x);
	while (process_cpu_ns() < cpu_ns);
	return x;
}

FUNCTION uint64_t brief_outer(uint64_t cpu_ns)
{
	uint64_t x = brief_leaf(cpu_ns);
	STAY;
	return x;
}

int main(int argc, char **argv)
{
	watchdog(20);
	volatile uint64_t x = brief_outer((uint64_t)(number(argc, argv, "--ms", 3) * 1e6));
	(void)x;
	return 0;
}
