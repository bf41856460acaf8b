/* What the workloads share: a bounded life, an identical inner loop, a stack with a known root, one line of truth.
 *
 * Rules for every program here:
 *  - it stops by itself (watchdog), and so do its children;
 *  - its truth is known in advance or printed at its end as one JSON line on stdout;
 *  - hot loops are in functions with a stack frame of their own.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, used))
/* Same alignment for every hot function, so that the same loop costs the same in each. */
#define HOT NOINLINE __attribute__((aligned(64)))

/* The end of the road: SIGALRM kills the process. Call first in main. */
static inline void watchdog(unsigned seconds) { alarm(seconds); }

/* A child must not outlive its parent, and has its own alarm. */
static inline void child_watchdog(unsigned seconds, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(99);
	alarm(seconds);
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
static inline uint64_t process_cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }
static inline uint64_t wall_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* Time since the calling thread was made in which it could have run and did not, by the kernel's own accounting (schedstat). */
static inline uint64_t run_delay_ns(void)
{
	char text[128] = "";
	unsigned long cpu = 0, delay = 0;
	int fd = open("/proc/thread-self/schedstat", O_RDONLY);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
		sscanf(text, "%lu %lu", &cpu, &delay);
	close(fd);
	return delay;
}

static inline void sleep_s(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
	while (nanosleep(&t, &t) == -1 && errno == EINTR)
		;
}

/* The inner loop: a dependent chain (about 2 ns each), never shortened by the compiler. Inlined into its caller,
 * which is where a profiler must see it. Asking for the frame's address makes the caller set up a frame although it is a
 * leaf: gcc leaves it out otherwise, even with -fno-omit-frame-pointer, and the walk would lose the leaf's caller. */
static inline __attribute__((always_inline)) uint64_t spin(uint64_t iterations, uint64_t x)
{
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
	for (uint64_t i = 0; i < iterations; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

#ifndef WITHOUT_ROOT_OF_STACK
/* Runs function(argument) with a frame pointer of zero in its caller: a walk by frame pointers alone would end there, one by unwind
 * rows goes on to the program's entry. */
#ifdef __cplusplus
extern "C"
#endif
	uint64_t root_of_stack(uint64_t (*function)(void *), void *argument);
#if defined(__x86_64__)
__asm__(".text\n.p2align 4\n.globl root_of_stack\n.type root_of_stack,@function\nroot_of_stack:\n"
	".cfi_startproc\n"
	"push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp, 0\n"
	"mov %rdi, %rax\nmov %rsi, %rdi\n"
	"xor %ebp, %ebp\n"
	"call *%rax\n"
	"pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbp\n"
	"ret\n.cfi_endproc\n.size root_of_stack, .-root_of_stack\n");
#elif defined(__aarch64__)
__asm__(".text\n.p2align 4\n.globl root_of_stack\n.type root_of_stack,@function\nroot_of_stack:\n"
	".cfi_startproc\n"
	"stp x29, x30, [sp, #-16]!\n.cfi_adjust_cfa_offset 16\n.cfi_rel_offset x29, 0\n.cfi_rel_offset x30, 8\n"
	"mov x2, x0\nmov x0, x1\nmov x29, xzr\n"
	"blr x2\n"
	"ldp x29, x30, [sp], #16\n.cfi_adjust_cfa_offset -16\n.cfi_restore x29\n.cfi_restore x30\n"
	"ret\n.cfi_endproc\n.size root_of_stack, .-root_of_stack\n");
#else
#error "x86-64 and aarch64 only"
#endif
#endif

/* --name value, --name=value is not understood. */
static inline const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return argv[i + 1];
	return otherwise;
}
static inline double number(int argc, char **argv, const char *name, double otherwise)
{
	const char *text = option(argc, argv, name, NULL);
	return text ? atof(text) : otherwise;
}
static inline int flag(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return 1;
	return 0;
}

static inline void die(const char *what)
{
	perror(what);
	exit(98);
}
#endif
