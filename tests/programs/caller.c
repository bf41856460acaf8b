/* caller --what PLACE [--calls N] [--pause-us P] [--seconds S]
 *
 * Calls one thing over and over, one thread: a function that begins with a nop5, nop, push, jump or sub, or the system calls getppid and
 * prctl(PR_SET_NAME). After every N calls it looks at its thread's CPU clock; when it is told to end (a line on stdin, or the end of stdin) or
 * S seconds are over it writes to stdout, for some 20,000 blocks a second at most, two 64-bit numbers: CLOCK_MONOTONIC at its end and CPU time
 * in it, both in ns.
 *
 * --flood: calls without looking at clocks on --threads T threads, each on a CPU of its own; every 1,000 calls it adds to a counter of its own
 * and each ms a line "MONOTONIC_NS CALLS CPU_NS" is kept, written at the end. --after-ms M: waits so long before it begins.
 * --exactly N: N calls when a line comes on stdin (--at-once: at once), then the end; prints N.
 * --deaf: stdin says nothing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define WITHOUT_ROOT_OF_STACK
#include "program.h"
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define PLACE(name, code) \
	__asm__(".text\n.p2align 6\n.globl caller_" name "\n.type caller_" name ",@function\ncaller_" name ":\n" code "ret\n.size caller_" name ", .-caller_" name "\n")
PLACE("nop5", ".byte 0x0f,0x1f,0x44,0,0\n");
PLACE("nop", "nop\n");
PLACE("push", "push %rbp\npop %rbp\n");
PLACE("jump", "jmp 1f\n1:\n");
PLACE("sub", "sub $8,%rsp\nadd $8,%rsp\n");
#else
#define PLACE(name, code) \
	__asm__(".text\n.p2align 6\n.globl caller_" name "\n.type caller_" name ",%function\ncaller_" name ":\n" code "ret\n.size caller_" name ", .-caller_" name "\n")
PLACE("nop5", "nop\n");
PLACE("nop", "nop\n");
PLACE("push", "mov x9,x9\n");
PLACE("jump", "b 1f\n1:\n");
PLACE("sub", "mov x9,x0\n");
#endif
void caller_nop5(void);
void caller_nop(void);
void caller_push(void);
void caller_jump(void);
void caller_sub(void);

static void call_getppid(void) { syscall(SYS_getppid); }
static void call_rename(void) { prctl(PR_SET_NAME, "caller"); }

struct place {
	const char *name;
	void (*call)(void);
};
static const struct place places[] = {
	{ "nop5", caller_nop5 }, { "nop", caller_nop }, { "push", caller_push }, { "jump", caller_jump },
	{ "sub", caller_sub }, { "getppid", call_getppid }, { "rename", call_rename },
};

static void (*what)(void);
static volatile int over;

static NOINLINE void calls(uint64_t n)
{
	void (*call)(void) = what;
	while (n--)
		call();
}

#define BLOCKS (1 << 21)
static uint64_t (*blocks)[2];

#define THREADS 64
static struct { _Atomic uint64_t calls; char room[56]; } done[THREADS];

static void *flood(void *argument)
{
	size_t number = (size_t)argument;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(number % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
	while (!over) {
		calls(1000);
		atomic_fetch_add_explicit(&done[number].calls, 1000, memory_order_relaxed);
	}
	return NULL;
}

static int deaf;

static int told(int timeout_ms)
{
	struct pollfd in = { .fd = deaf ? -1 : 0, .events = POLLIN };
	return poll(&in, 1, timeout_ms) > 0;
}

static void run_flood(size_t threads, double seconds, uint64_t after_ms)
{
	pthread_t thread[THREADS];
	static uint64_t lines[120000][3];
	size_t kept = 0;
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9);
	printf("ready\n");
	fflush(stdout);
	sleep_s((double)after_ms / 1e3);
	for (size_t i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, flood, (void *)i))
			die("pthread_create");
	while (wall_ns() < end && !told(1)) {
		uint64_t sum = 0;
		for (size_t i = 0; i < threads; i++)
			sum += atomic_load_explicit(&done[i].calls, memory_order_relaxed);
		if (kept < 120000) {
			lines[kept][0] = wall_ns();
			lines[kept][1] = sum;
			lines[kept++][2] = process_cpu_ns();
		}
	}
	over = 1;
	for (size_t i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	for (size_t i = 0; i < kept; i++)
		printf("%lu %lu %lu\n", lines[i][0], lines[i][1], lines[i][2]);
}

int main(int argc, char **argv)
{
	const char *name = option(argc, argv, "--what", "push");
	double seconds = number(argc, argv, "--seconds", 20);
	uint64_t each = (uint64_t)number(argc, argv, "--calls", 200), kept = 0;
	double pause_s = number(argc, argv, "--pause-us", 0) / 1e6;
	uint64_t exactly = (uint64_t)number(argc, argv, "--exactly", 0);

	deaf = flag(argc, argv, "--deaf");
	watchdog((unsigned)seconds + 10);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (!strcmp(places[i].name, name))
			what = places[i].call;
	if (!what) {
		fprintf(stderr, "no place %s\n", name);
		return 2;
	}
	if (exactly) {
		if (!flag(argc, argv, "--at-once")) {
			printf("ready\n");
			fflush(stdout);
			told((int)(seconds * 1e3));
		}
		calls(exactly);
		printf("%lu\n", exactly);
		return 0;
	}
	if (flag(argc, argv, "--flood")) {
		size_t threads = (size_t)number(argc, argv, "--threads", (double)sysconf(_SC_NPROCESSORS_ONLN));
		run_flood(threads < THREADS ? threads : THREADS, seconds, (uint64_t)number(argc, argv, "--after-ms", 0));
		return 0;
	}
	blocks = calloc(BLOCKS, sizeof(*blocks));
	if (!blocks)
		die("calloc");
	printf("ready\n");
	fflush(stdout);
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), now = 0;
	do {
		for (int i = 0; i < 16 && kept < BLOCKS; i++) {
			uint64_t before = thread_cpu_ns();
			calls(each);
			uint64_t cpu = thread_cpu_ns() - before;
			now = wall_ns();
			if (!kept || now - blocks[kept - 1][0] >= 50000) {
				blocks[kept][0] = now;
				blocks[kept++][1] = cpu;
			}
			if (pause_s > 0)
				sleep_s(pause_s);
		}
	} while (now < end && kept < BLOCKS && !told(0));
	fwrite(blocks, sizeof(*blocks), kept, stdout);
	return 0;
}
