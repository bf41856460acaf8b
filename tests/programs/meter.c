/* meter --file PATH [--cpu N] [--depth D] [--seconds S]
 *
 * A load that can be read from outside while it runs: one thread, pinned to CPU N, at the bottom of D frames, runs the common loop
 * and after every 100,000 iterations writes (iterations, CPU time of the thread, wall time) to PATH, a shared mapping of
 * four 64-bit numbers: sequence (odd while writing), iterations, cpu_ns, wall_ns. What an interrupt takes is charged to the thread's CPU
 * time, so iterations per CPU second show it.
 */
#include "watched.h"

HOT uint64_t meter_leaf(uint64_t x)
{
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), iterations = 0, now;
	do {
		x = spin(100000, x);
		iterations += 100000;
		uint64_t cpu = thread_cpu_ns();
		now = wall_ns();
		page[0]++;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		page[1] = iterations;
		page[2] = cpu;
		page[3] = now;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		page[0]++;
	} while (now < end);
	return x;
}

NOINLINE uint64_t meter_frame(uint64_t depth, uint64_t x)
{
	x = depth <= 1 ? meter_leaf(x) : meter_frame(depth - 1, x);
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

NOINLINE uint64_t meter_enter(void *argument)
{
	uint64_t x = meter_frame(*(uint64_t *)argument, 88172645463325252u);
	__asm__ volatile("" : "+r"(x));
	return x;
}

int main(int argc, char **argv)
{
	run_watched(argc, argv, meter_enter);
	printf("{\"program\":\"meter\",\"pid\":%d,\"iterations\":%lu,\"cpu_ns\":%lu}\n", getpid(), page[1], process_cpu_ns());
	return 0;
}
