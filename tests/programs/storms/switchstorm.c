/* switchstorm [--rate R] [--seconds S] [--sleepers N]: R context switches a second on the whole machine (default 200,000), by one pair of
 * threads per CPU that hand a byte to and fro; beside them N threads (default 200) that sleep and wake each 10 ms, so that there is blocked
 * time of many lengths. Prints the switches that there were, and what all threads together waited for a CPU,
 * by the kernel. */
#define _GNU_SOURCE
#include "../program.h"
#include <sched.h>

enum { CPUS_MAX = 256, SLEEPERS_MAX = 4096 };

static double rate_per_pair;
static uint64_t start, end, delayed;

struct pair {
	int there[2], back[2], cpu;
};
static struct pair pairs[CPUS_MAX];

static void end_thread(void) { __atomic_add_fetch(&delayed, run_delay_ns(), __ATOMIC_RELAXED); }

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static void *pong(void *argument)
{
	struct pair *p = argument;
	char byte;
	pin(p->cpu);
	while (read(p->there[0], &byte, 1) == 1)
		if (write(p->back[1], &byte, 1) != 1)
			break;
	close(p->back[1]);
	end_thread();
	return NULL;
}

/* Each turn is two switches: to the other side and back. */
static void *ping(void *argument)
{
	struct pair *p = argument;
	char byte = 0;
	uint64_t turns = 0;
	pin(p->cpu);
	for (uint64_t now = start; now < end; now = wall_ns()) {
		if ((double)turns * 2 > (double)(now - start) * 1e-9 * rate_per_pair) {
			sleep_s(0.0005);
			continue;
		}
		for (int i = 0; i < 32; i++, turns++)
			if (write(p->there[1], &byte, 1) != 1 || read(p->back[0], &byte, 1) != 1)
				die("pipe");
	}
	close(p->there[1]);
	end_thread();
	return NULL;
}

static void *sleeper(void *argument)
{
	uint64_t number = (uint64_t)(uintptr_t)argument;
	while (wall_ns() < end)
		sleep_s(0.001 + 0.0001 * (double)(number % 190));
	end_thread();
	return NULL;
}

int main(int argc, char **argv)
{
	double rate = number(argc, argv, "--rate", 200000), seconds = number(argc, argv, "--seconds", 10);
	int sleepers = (int)number(argc, argv, "--sleepers", 200), count = 0;
	watchdog((unsigned)seconds + 30);
	cpu_set_t allowed;
	if (sched_getaffinity(0, sizeof allowed, &allowed))
		die("sched_getaffinity");
	start = wall_ns();
	end = start + (uint64_t)(seconds * 1e9);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			pairs[count++].cpu = cpu;
	rate_per_pair = rate / count;
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	static pthread_t threads[2 * CPUS_MAX + SLEEPERS_MAX];
	int running = 0;
	for (int i = 0; i < count; i++) {
		if (pipe2(pairs[i].there, O_CLOEXEC) || pipe2(pairs[i].back, O_CLOEXEC))
			die("pipe");
		if (pthread_create(&threads[running++], &small, pong, &pairs[i]) ||
		    pthread_create(&threads[running++], &small, ping, &pairs[i]))
			die("pthread_create");
	}
	for (int i = 0; i < sleepers && i < SLEEPERS_MAX; i++)
		if (pthread_create(&threads[running++], &small, sleeper, (void *)(uintptr_t)i))
			die("pthread_create");
	for (int i = 0; i < running; i++)
		pthread_join(threads[i], NULL);
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	double took = (double)(wall_ns() - start) * 1e-9;
	unsigned long events = (unsigned long)(usage.ru_nvcsw + usage.ru_nivcsw);
	printf("{\"program\":\"switchstorm\",\"pid\":%d,\"events\":%lu,\"per_s\":%.0f,\"run_delay\":%lu}\n", getpid(), events,
	       (double)events / took, delayed + run_delay_ns());
	return 0;
}
