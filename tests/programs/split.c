/* split [--shares 70,20,10] [--threads N] [--seconds S | --cpu-ms MS]
 *
 * Each thread `split-I` calls work_70, work_20 and work_10 in turn. Per turn they run exactly shares[k] x unit iterations
 * of the same loop, so the split of CPU time is the split of iterations: exact by construction. A turn is some 30-80 us,
 * much shorter than a 10 ms period, and `unit` changes pseudo-randomly from turn to turn, so no sampling period can
 * fall into step with it.
 *
 * --cpu-ms: each thread stops after that much CPU time of its own instead (looked at every 64 turns).
 */
#include "program.h"

#define WORK(name) \
	HOT uint64_t name(uint64_t iterations, uint64_t x) \
	{ \
		x = spin(iterations, x); \
		__asm__ volatile("" ::: "memory"); /* not a tail call, not merged with its twins */ \
		return x; \
	}
WORK(work_70)
WORK(work_20)
WORK(work_10)

static atomic_int stop;
static uint64_t shares[3] = { 70, 20, 10 };
static uint64_t cpu_ns_limit;

struct worker {
	pthread_t thread;
	int number, tid;
	uint64_t iterations[3], turns, cpu_ns, sink;
};

HOT uint64_t rotate(void *argument)
{
	struct worker *w = argument;
	uint64_t x = 88172645463325252u + (uint64_t)w->number, random = 12345u + (uint64_t)w->number;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint64_t unit = 150 + (random >> 33) % 251;
		x = work_70(shares[0] * unit, x);
		x = work_20(shares[1] * unit, x);
		x = work_10(shares[2] * unit, x);
		for (int k = 0; k < 3; k++)
			w->iterations[k] += shares[k] * unit;
		if (++w->turns % 64 == 0 && cpu_ns_limit && thread_cpu_ns() >= cpu_ns_limit)
			break;
	}
	return x;
}

static void *worker(void *argument)
{
	struct worker *w = argument;
	char name[16];
	snprintf(name, sizeof name, "split-%d", w->number);
	prctl(PR_SET_NAME, name);
	w->tid = gettid();
	w->sink = root_of_stack(rotate, w);
	w->cpu_ns = thread_cpu_ns();
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 5);
	int threads = (int)number(argc, argv, "--threads", 1);
	cpu_ns_limit = (uint64_t)(number(argc, argv, "--cpu-ms", 0) * 1e6);
	watchdog((unsigned)(cpu_ns_limit ? 120 : seconds + 30));
	sscanf(option(argc, argv, "--shares", "70,20,10"), "%lu,%lu,%lu", &shares[0], &shares[1], &shares[2]);
	if (threads < 1 || threads > 256)
		return 97;
	static struct worker workers[256];
	uint64_t start = wall_ns();
	for (int i = 0; i < threads; i++) {
		workers[i].number = i;
		if (pthread_create(&workers[i].thread, NULL, worker, &workers[i]))
			die("pthread_create");
	}
	if (!cpu_ns_limit) {
		sleep_s(seconds);
		atomic_store(&stop, 1);
	}
	uint64_t iterations[3] = { 0 }, cpu = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		cpu += workers[i].cpu_ns;
		for (int k = 0; k < 3; k++)
			iterations[k] += workers[i].iterations[k];
	}
	uint64_t all = iterations[0] + iterations[1] + iterations[2];
	printf("{\"program\":\"split\",\"pid\":%d,\"wall_ns\":%lu,\"cpu_ns\":%lu,\"process_cpu_ns\":%lu,\"iterations\":%lu,"
	       "\"functions\":{", getpid(), wall_ns() - start, cpu, process_cpu_ns(), all);
	const char *names[] = { "work_70", "work_20", "work_10" };
	for (int k = 0; k < 3; k++)
		printf("%s\"%s\":{\"iterations\":%lu,\"share\":%.9f,\"cpu_ns\":%.0f}", k ? "," : "", names[k], iterations[k],
		       (double)iterations[k] / (double)all, (double)cpu * (double)iterations[k] / (double)all);
	printf("},\"threads\":[");
	for (int i = 0; i < threads; i++)
		printf("%s{\"tid\":%d,\"comm\":\"split-%d\",\"cpu_ns\":%lu,\"iterations\":%lu}", i ? "," : "", workers[i].tid, i,
		       workers[i].cpu_ns, workers[i].iterations[0] + workers[i].iterations[1] + workers[i].iterations[2]);
	printf("]}\n");
	return 0;
}
