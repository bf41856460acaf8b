/* pingpong [--seconds S] [--spin ITERATIONS]
 *
 * Two processes hand a byte to and fro through two pipes: as many context switches as the machine can do. Each side spins
 * ITERATIONS (default 500) on average in ping_hot or pong_hot per turn. Each turn's number is random: turns of one length would fit
 * whole into a period of 999 Hz on some machines, and the samples would all see the same part of a turn.
 */
#include "program.h"

HOT uint64_t ping_hot(uint64_t n, uint64_t x)
{
	x = spin(n, x);
	__asm__ volatile("" ::: "memory");
	return x;
}
HOT uint64_t pong_hot(uint64_t n, uint64_t x)
{
	x = spin(n, x);
	__asm__ volatile("" ::: "memory");
	return x;
}

/* Uniform in 0 .. 2n. */
static uint64_t around(uint64_t n, uint64_t *random)
{
	*random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*random >> 33) % (2 * n + 1);
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 5);
	uint64_t n = (uint64_t)number(argc, argv, "--spin", 500), turns = 0, x = 1, random = (uint64_t)getpid();
	watchdog((unsigned)(seconds + 30));
	int there[2], back[2];
	char byte = 0;
	if (pipe(there) || pipe(back))
		die("pipe");
	pid_t self = getpid(), child = fork();
	if (child == -1)
		die("fork");
	if (child == 0) {
		child_watchdog((unsigned)(seconds + 30), self);
		prctl(PR_SET_NAME, "pong");
		random = (uint64_t)getpid();
		close(there[1]);
		while (read(there[0], &byte, 1) == 1) {
			x = pong_hot(around(n, &random), x);
			if (write(back[1], &byte, 1) != 1)
				break;
		}
		_exit(0);
	}
	prctl(PR_SET_NAME, "ping");
	close(there[0]);
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9);
	while (wall_ns() < end) {
		x = ping_hot(around(n, &random), x);
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			break;
		turns++;
	}
	close(there[1]);
	waitpid(child, NULL, 0);
	struct rusage children;
	getrusage(RUSAGE_CHILDREN, &children);
	printf("{\"program\":\"pingpong\",\"pid\":%d,\"child\":%d,\"turns\":%lu,\"cpu_ns\":%lu,\"child_cpu_us\":%ld}\n", self, child, turns,
	       process_cpu_ns(),
	       (children.ru_utime.tv_sec + children.ru_stime.tv_sec) * 1000000L + children.ru_utime.tv_usec +
		       children.ru_stime.tv_usec);
	return 0;
}
