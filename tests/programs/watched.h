/* What meter and gaps share: a load that runs pinned to a CPU at the bottom of a known stack, for a known time, and writes figures to a
 * mapping of a file, to be read from outside while it runs.
 *
 * --file PATH [--cpu N] [--depth D] [--seconds S]
 */
#pragma once
#include "program.h"
#include <sched.h>

static volatile uint64_t *page;
static double seconds;

/* Reads the options, maps the page, pins the thread, and runs `enter` with the depth as its argument. */
static void run_watched(int argc, char **argv, uint64_t (*enter)(void *))
{
	seconds = number(argc, argv, "--seconds", 5);
	uint64_t depth = (uint64_t)number(argc, argv, "--depth", 28);
	int cpu = (int)number(argc, argv, "--cpu", -1);
	watchdog((unsigned)(seconds + 30));
	const char *path = option(argc, argv, "--file", NULL);
	if (!path)
		exit(97);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd == -1 || ftruncate(fd, 4096))
		die(path);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		die("mmap");
	if (cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof set, &set))
			die("sched_setaffinity");
	}
	root_of_stack(enter, &depth);
}
