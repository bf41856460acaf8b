/* waits [--seconds S]
 *
 * Threads that wait in one known function each, and measure how long: wait_timer (naps of 3 ms), wait_futex (a condition that is
 * signalled to and fro by two threads), wait_pipe (a byte from another thread each 2 ms), wait_long (one nap as long as the program),
 * wait_disk (fsync). Two hogs on one CPU wait for each other: what they waited is told by the kernel (schedstat). Time that the wait itself
 * took on the CPU is not counted. run_delay is what all threads together waited for a CPU, by the kernel.
 */
#include "program.h"
#include <sched.h>

static double seconds;
static uint64_t end_ns;
static uint64_t waited[5], delayed[2], delayed_all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int whose, there[2], file;

/* Wall time less CPU time of what `wait` does. */
#define MEASURED(n, wait)                                                                                                         \
	do {                                                                                                                      \
		uint64_t wall = wall_ns(), cpu = thread_cpu_ns();                                                                 \
		wait;                                                                                                             \
		uint64_t off = wall_ns() - wall, on = thread_cpu_ns() - cpu;                                                      \
		__atomic_add_fetch(&waited[n], off > on ? off - on : 0, __ATOMIC_RELAXED);                                        \
		__asm__ volatile("" ::: "memory");                                                                                \
	} while (0)

NOINLINE void wait_timer(void) { MEASURED(0, sleep_s(0.003)); }
static void hand_over(int me)
{
	pthread_mutex_lock(&lock);
	while (whose != me && wall_ns() < end_ns) {
		struct timespec at;
		clock_gettime(CLOCK_REALTIME, &at);
		at.tv_nsec += 50000000;
		at.tv_sec += at.tv_nsec / 1000000000;
		at.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&turn, &lock, &at);
	}
	whose = !me;
	pthread_cond_broadcast(&turn);
	pthread_mutex_unlock(&lock);
}
NOINLINE void wait_futex(int me) { MEASURED(1, hand_over(me)); }
NOINLINE void wait_pipe(void)
{
	char byte;
	MEASURED(2, if (read(there[0], &byte, 1) < 0) die("read"));
}
NOINLINE void wait_long(void) { MEASURED(3, sleep_s(seconds)); }
NOINLINE void wait_disk(void)
{
	if (pwrite(file, &end_ns, sizeof(end_ns), 0) < 0)
		die("pwrite");
	MEASURED(4, fsync(file));
}

static void *timer_thread(void *x)
{
	while (wall_ns() < end_ns)
		wait_timer();
	return x;
}
static void *futex_thread(void *me)
{
	uint64_t x = 1;
	while (wall_ns() < end_ns) {
		wait_futex(me != NULL);
		x = spin(20000, x);
	}
	__asm__ volatile("" : : "r"(x));
	return me;
}
static void *pipe_thread(void *x)
{
	while (wall_ns() < end_ns)
		wait_pipe();
	return x;
}
static void *writer_thread(void *x)
{
	while (wall_ns() < end_ns + 10000000) {
		sleep_s(0.002);
		if (write(there[1], "", 1) != 1)
			die("write");
	}
	return x;
}
static void *long_thread(void *x)
{
	wait_long();
	return x;
}
static void *disk_thread(void *x)
{
	while (wall_ns() < end_ns) {
		wait_disk();
		sleep_s(0.001);
	}
	return x;
}
HOT uint64_t hog(uint64_t x)
{
	while (wall_ns() < end_ns)
		x = spin(10000, x);
	return x;
}
static void *hog_thread(void *which)
{
	uint64_t before = run_delay_ns(), x = hog(1);
	__asm__ volatile("" : : "r"(x));
	delayed[which != NULL] = run_delay_ns() - before;
	return which;
}

struct thread {
	void *(*start)(void *);
	void *argument;
};
static void *with_delay(void *x)
{
	struct thread *thread = x;
	thread->start(thread->argument);
	__atomic_add_fetch(&delayed_all, run_delay_ns(), __ATOMIC_RELAXED);
	return x;
}

int main(int argc, char **argv)
{
	seconds = number(argc, argv, "--seconds", 4);
	watchdog((unsigned)(seconds + 30));
	char path[] = "/var/tmp/waits.XXXXXX";
	file = mkstemp(path);
	if (file < 0 || unlink(path) || pipe(there))
		die("files");
	end_ns = wall_ns() + (uint64_t)(seconds * 1e9);
	pthread_t threads[9];
	struct thread starts[9] = {
		{ timer_thread, NULL },  { futex_thread, NULL }, { futex_thread, &seconds }, { pipe_thread, NULL },   { writer_thread, NULL },
		{ long_thread, NULL },   { disk_thread, NULL },  { hog_thread, NULL },       { hog_thread, &seconds },
	};
	for (size_t i = 0; i < 9; i++) {
		pthread_attr_t attr;
		cpu_set_t cpus;
		pthread_attr_init(&attr);
		CPU_ZERO(&cpus);
		CPU_SET(0, &cpus);
		if (starts[i].start == hog_thread)
			pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
		if (pthread_create(&threads[i], &attr, with_delay, &starts[i]))
			die("pthread_create");
	}
	for (size_t i = 0; i < 9; i++)
		pthread_join(threads[i], NULL);
	printf("{\"program\":\"waits\",\"pid\":%d,\"wait_timer\":%lu,\"wait_futex\":%lu,\"wait_pipe\":%lu,\"wait_long\":%lu,\"wait_disk\":%lu,"
	       "\"hog\":%lu,\"run_delay\":%lu}\n",
	       getpid(), waited[0], waited[1], waited[2], waited[3], waited[4], delayed[0] + delayed[1], delayed_all + run_delay_ns());
	return 0;
}
