/* forkstorm [--rate R] [--seconds S]: R processes a second (default 1000), each of which executes this very program, does next to nothing and
 * leaves. vfork, so that the rate is reached; a child is waited for when there is time. Prints how many there were. */
#include "../program.h"

extern char **environ;

static uint64_t reap(int options)
{
	uint64_t ended = 0;
	while (waitpid(-1, NULL, options) > 0)
		ended++;
	return ended;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "leaf") == 0)
		return (int)(spin(1000, 1) & 0); /* 2 us of its own */
	double rate = number(argc, argv, "--rate", 1000), seconds = number(argc, argv, "--seconds", 10);
	watchdog((unsigned)seconds + 30);
	char *leaf[] = { "forkstorm", "leaf", NULL };
	uint64_t start = wall_ns(), end = start + (uint64_t)(seconds * 1e9), children = 0, ended = 0;
	for (uint64_t now = start; now < end; now = wall_ns()) {
		if ((double)children >= (double)(now - start) * 1e-9 * rate) {
			ended += reap(WNOHANG);
			sleep_s(0.0002);
			continue;
		}
		pid_t child = vfork();
		if (child == 0) {
			execve("/proc/self/exe", leaf, environ);
			_exit(98);
		}
		if (child < 0)
			die("vfork");
		children++;
		if (children - ended >= 64)
			ended += reap(WNOHANG);
	}
	double took = (double)(wall_ns() - start) * 1e-9;
	reap(0);
	printf("{\"program\":\"forkstorm\",\"pid\":%d,\"events\":%lu,\"per_s\":%.0f}\n", getpid(), (unsigned long)children,
	       (double)children / took);
	return 0;
}
