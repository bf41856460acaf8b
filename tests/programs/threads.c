/* threads N [--hot H] [--seconds S]
 *
 * N threads besides main. The first H burn CPU in thread_hot, named `hot-I`; the others sleep, named `sleeper`.
 */
#include "program.h"

static atomic_int stop, ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static atomic_ulong hot_cpu_ns;

HOT uint64_t thread_hot(void *argument)
{
	uint64_t x = 1 + (uint64_t)(uintptr_t)argument;
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		x = spin(20000, x);
	return x;
}

static void *hot(void *argument)
{
	char name[16];
	snprintf(name, sizeof name, "hot-%d", (int)(intptr_t)argument);
	prctl(PR_SET_NAME, name);
	volatile uint64_t sink = root_of_stack(thread_hot, argument);
	(void)sink;
	atomic_fetch_add(&hot_cpu_ns, thread_cpu_ns());
	return NULL;
}

static void *sleeper(void *argument)
{
	prctl(PR_SET_NAME, "sleeper");
	atomic_fetch_add(&ready, 1);
	pthread_mutex_lock(&lock);
	while (!atomic_load(&stop))
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	return argument;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 8;
	int hots = (int)number(argc, argv, "--hot", 2);
	double seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 60));
	if (count < 1 || count > 20000 || hots > count)
		return 97;
	pthread_t *threads = calloc((size_t)count, sizeof *threads);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	/* Sleepers first, so that a reader of "ready" finds the whole process. */
	for (int i = hots; i < count; i++)
		if (pthread_create(&threads[i], &small, sleeper, NULL))
			die("pthread_create");
	while (atomic_load(&ready) < count - hots)
		sleep_s(0.005);
	for (int i = 0; i < hots; i++)
		if (pthread_create(&threads[i], &small, hot, (void *)(intptr_t)i))
			die("pthread_create");
	printf("{\"program\":\"threads\",\"event\":\"ready\",\"pid\":%d,\"threads\":%d}\n", getpid(), count + 1);
	fflush(stdout);
	sleep_s(seconds);
	pthread_mutex_lock(&lock);
	atomic_store(&stop, 1);
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("{\"program\":\"threads\",\"pid\":%d,\"threads\":%d,\"hot\":%d,\"hot_cpu_ns\":%lu,\"process_cpu_ns\":%lu}\n", getpid(),
	       count + 1, hots, hot_cpu_ns, process_cpu_ns());
	return 0;
}
