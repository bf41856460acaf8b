/* instep [--seconds S] [--cpu N]
 *
 * Marches in step with the scheduler's tick: after each tick it sleeps a little, burns most of its time in after_tick() and is done long
 * before the next one; then it sleeps until just before that one, and burns the rest in across_tick(), which the tick hits. A clock that
 * rides the tick sees the second only. Where the tick is, is told by the coarse clock, which moves with it. Truth: CPU time of either.
 */
#include "program.h"
#include <sched.h>

static uint64_t burnt[2];

HOT uint64_t after_tick(uint64_t until, uint64_t x)
{
	while (wall_ns() < until)
		x = spin(500, x);
	return x;
}
HOT uint64_t across_tick(uint64_t until, uint64_t x)
{
	while (wall_ns() < until)
		x = spin(500, x);
	return x + 1;
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* When a tick was: the earliest moment within the period, of 25, at which the coarse clock was seen to move. */
static uint64_t find_tick(uint64_t period)
{
	uint64_t first = 0, best = 0;
	for (int i = 0; i < 25; i++) {
		uint64_t before = clock_ns(CLOCK_MONOTONIC_COARSE), now;
		while (clock_ns(CLOCK_MONOTONIC_COARSE) == before)
			;
		now = wall_ns();
		if (!first)
			first = best = now;
		/* Distance to the first, modulo the period, in -period/2 .. period/2. */
		int64_t off = (int64_t)((now - first) % period), least = (int64_t)(best - first);
		if (off > (int64_t)period / 2)
			off -= (int64_t)period;
		if (off < least)
			best = first + (uint64_t)off;
	}
	return best;
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)seconds + 30);
	cpu_set_t cpu;
	CPU_ZERO(&cpu);
	CPU_SET((int)number(argc, argv, "--cpu", 0), &cpu);
	struct sched_param first = { .sched_priority = 1 };
	struct timespec resolution;
	if (sched_setaffinity(0, sizeof cpu, &cpu) || clock_getres(CLOCK_MONOTONIC_COARSE, &resolution))
		die("cpu or clock");
	/* Others that want the CPU would push it out of step. */
	int ahead = !sched_setscheduler(0, SCHED_FIFO, &first);
	prctl(PR_SET_TIMERSLACK, 1);
	uint64_t period = (uint64_t)resolution.tv_nsec, end = wall_ns() + (uint64_t)(seconds * 1e9), x = 1, turns = 0, tick;
	while (wall_ns() < end) {
		/* Looked up anew each two seconds: the clock is trimmed all the time. */
		tick = find_tick(period);
		for (int turn = 0; turn < 500 && wall_ns() < end; turn++, turns++) {
			tick += (wall_ns() - tick) / period * period;
			uint64_t cpu_before = thread_cpu_ns();
			sleep_until(tick + period / 10);
			x = after_tick(tick + period / 2, x);
			uint64_t cpu_between = thread_cpu_ns();
			sleep_until(tick + period - period / 10);
			x = across_tick(tick + period + period / 40, x);
			burnt[0] += cpu_between - cpu_before;
			burnt[1] += thread_cpu_ns() - cpu_between;
		}
	}
	__asm__ volatile("" : : "r"(x));
	printf("{\"program\":\"instep\",\"pid\":%d,\"first\":%s,\"turns\":%lu,\"after_tick\":%lu,\"across_tick\":%lu}\n", getpid(),
	       ahead ? "true" : "false", turns, burnt[0], burnt[1]);
	return 0;
}
