/* gaps --file PATH [--cpu N] [--depth D] [--seconds S]
 *
 * Like meter, but it measures what interrupts take by itself: it reads the clock without a pause, and adds up the gaps between
 * two readings that are longer than 400 ns and shorter than 100 us (longer: another thread or guest ran). Written to PATH about every
 * 100 us: sequence, sum of gaps in ns, CPU time, wall time, number of gaps. Noise of caches and clock rates hardly touches it; what an
 * interrupt costs the code after it (cold caches) is not in it: meter sees that.
 */
#include "watched.h"

HOT uint64_t gaps_leaf(uint64_t x)
{
	uint64_t now = wall_ns(), end = now + (uint64_t)(seconds * 1e9), published = now, sum = 0, count = 0;
	do {
		uint64_t before = now;
		now = wall_ns();
		uint64_t gap = now - before;
		if (gap > 400 && gap < 100000) {
			sum += gap;
			count++;
		}
		if (now - published < 100000)
			continue;
		uint64_t cpu = thread_cpu_ns();
		page[0]++;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		page[1] = sum;
		page[2] = cpu;
		page[3] = now;
		page[4] = count;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		page[0]++;
		published = now = wall_ns(); /* what publishing took is no gap */
	} while (now < end);
	return x + sum;
}

NOINLINE uint64_t gaps_frame(uint64_t depth, uint64_t x)
{
	x = depth <= 1 ? gaps_leaf(x) : gaps_frame(depth - 1, x);
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

NOINLINE uint64_t gaps_enter(void *argument)
{
	uint64_t x = gaps_frame(*(uint64_t *)argument, 1);
	__asm__ volatile("" : "+r"(x));
	return x;
}

int main(int argc, char **argv)
{
	run_watched(argc, argv, gaps_enter);
	printf("{\"program\":\"gaps\",\"pid\":%d,\"gap_ns\":%lu,\"gaps\":%lu,\"cpu_ns\":%lu}\n", getpid(), page[1], page[4],
	       process_cpu_ns());
	return 0;
}
