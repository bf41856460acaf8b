/* spawner [--rate R] [--seconds S] [--ms M] [--names a,b,...]: vforks and executes R short programs a second (0: as fast as they end),
 * each of the names beside it in turn. Between vfork and exec the child works on its parent's stack: main;spawn_one;vforked;vforked_leaf.
 * Prints the number of children and their CPU time. */
#include "corpus.h"

DEFINE_LEAF(vforked_leaf)

FUNCTION void vforked(char **argv)
{
	volatile uint64_t x = vforked_leaf(50000, 1);
	(void)x;
	execv(argv[0], argv);
	_exit(98);
}

FUNCTION pid_t spawn_one(char **argv)
{
	pid_t child = vfork();
	if (child == 0)
		vforked(argv);
	STAY;
	return child;
}

int main(int argc, char **argv)
{
	double rate = number(argc, argv, "--rate", 0), seconds = number(argc, argv, "--seconds", 2);
	watchdog((unsigned)seconds + 30);
	char folder[2048], names[512], *programs[16];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
	if (length <= 0)
		die("/proc/self/exe");
	folder[length] = 0;
	*strrchr(folder, '/') = 0;
	snprintf(names, sizeof names, "%s", option(argc, argv, "--names", "brief"));
	int count = 0;
	for (char *name = strtok(names, ","); name && count < 16; name = strtok(NULL, ","), count++)
		if (asprintf(&programs[count], "%s/%s", folder, name) < 0)
			die("asprintf");
	char *ms = (char *)option(argc, argv, "--ms", "3");
	uint64_t start = wall_ns(), end = start + (uint64_t)(seconds * 1e9), children = 0;
	while (wall_ns() < end) {
		if (rate > 0 && (double)children > (double)(wall_ns() - start) * 1e-9 * rate) {
			sleep_s(0.0005);
			continue;
		}
		char *arguments[] = { programs[children % (uint64_t)count], "--ms", ms, NULL };
		pid_t child = spawn_one(arguments);
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			die("child");
		children++;
	}
	struct rusage usage;
	getrusage(RUSAGE_CHILDREN, &usage);
	printf("{\"program\":\"spawner\",\"pid\":%d,\"children\":%lu,\"children_cpu_ns\":%lu}\n", getpid(), (unsigned long)children,
	       (unsigned long)((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000l +
			       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000l));
	return 0;
}
