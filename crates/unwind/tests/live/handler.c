/* A thread asleep in a signal handler, above everything that is hard to unwind: an alternate stack, functions that align their stack or
 * have arrays of variable size, a callback from the C library, and its lazy binding. Built with -O2 -fomit-frame-pointer -mavx. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int depth_wanted = 20;

__attribute__((noinline)) static void asleep(int signal)
{
	(void)signal;
	write(1, "asleep\n", 7);
	pause();
	write(1, "awake\n", 6);
}

/* Locals on a 64-byte boundary: the distance to the caller's frame is not constant. The seventh argument is on the stack: GCC then keeps
 * the caller's frame in a register, and what it says about it are expressions. */
__attribute__((noinline)) int aligned(int depth, int b, int c, int d, int e, int f, int g)
{
	struct {
		char bytes[96];
	} __attribute__((aligned(64))) local;

	memset(&local, depth, sizeof(local));
	__asm__ volatile("" : : "r"(&local) : "memory");
	if (depth)
		return aligned(depth - 1, c, d, e, f, g, b) + local.bytes[depth] + g;
	raise(SIGUSR1);
	return local.bytes[3] + g;
}

__attribute__((noinline)) static int variable(int length)
{
	char bytes[length];
	int result;

	memset(bytes, length, sizeof(bytes));
	__asm__ volatile("" : : "r"(bytes) : "memory");
	result = aligned(depth_wanted, 1, 2, 3, 4, 5, length);
	__asm__ volatile("" : : "r"(bytes) : "memory");
	return result + bytes[length / 2];
}

static int compare(const void *a, const void *b)
{
	static int once;

	if (!once++)
		return variable(*(const int *)a + 77);
	return *(const int *)a - *(const int *)b;
}

static void *thread(void *unused)
{
	static char alternate[65536];
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
	struct sigaction action = {.sa_handler = asleep, .sa_flags = SA_ONSTACK};
	int numbers[64];

	(void)unused;
	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 64; i++)
		numbers[i] = (i * 37) & 63;
	qsort(numbers, 64, sizeof(numbers[0]), compare);
	return NULL;
}

int main(void)
{
	pthread_t other;

	pthread_create(&other, NULL, thread, NULL);
	pthread_join(other, NULL);
	return 0;
}
