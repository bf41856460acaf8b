/* clock: main;read_clock;(libc);(vDSO), in a loop of clock_gettime, and main;read_time of gettimeofday and time. */
#include "corpus.h"
#include <sys/time.h>

static volatile uint64_t sink;

FUNCTION void read_clock(uint64_t unit)
{
	for (uint64_t i = 0; i < 4 * unit; i++) {
		sink += clock_ns(CLOCK_MONOTONIC);
		RUBBISH;
		sink += clock_ns(CLOCK_REALTIME_COARSE);
	}
	STAY;
}

FUNCTION void read_time(uint64_t unit)
{
	for (uint64_t i = 0; i < unit; i++) {
		struct timeval now;
		gettimeofday(&now, NULL);
		sink += (uint64_t)now.tv_usec + (uint64_t)time(NULL);
	}
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	for (uint64_t unit; (unit = next_turn(&course));) {
		read_clock(unit);
		read_time(unit);
	}
	return done("clock", &course);
}
