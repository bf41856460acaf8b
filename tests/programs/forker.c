/* forker [--rate R] [--burn-ms MS] [--seconds S] [--max N]
 *
 * Forks R children per second (0: as fast as they end, at most 4 alive) until S seconds or N children. Each child burns
 * MS of its own CPU time in forked_hot, half of it more or less at random (no sampling period falls into step with them), adds it to
 * shared memory and leaves. The parent waits for every child.
 */
#include "program.h"

struct shared {
	atomic_ulong cpu_ns, ended;
};

HOT uint64_t forked_hot(void *argument)
{
	uint64_t limit = *(uint64_t *)argument, x = 88172645463325252u;
	do
		x = spin(5000, x);
	while (process_cpu_ns() < limit);
	return x;
}

int main(int argc, char **argv)
{
	double rate = number(argc, argv, "--rate", 100), seconds = number(argc, argv, "--seconds", 5);
	uint64_t burn = (uint64_t)(number(argc, argv, "--burn-ms", 5) * 1e6);
	uint64_t max = (uint64_t)number(argc, argv, "--max", 20000), children = 0, random = 1;
	watchdog((unsigned)(seconds + 30));
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	pid_t self = getpid();
	int alive = 0;
	uint64_t start = wall_ns(), end = start + (uint64_t)(seconds * 1e9);
	while (wall_ns() < end && children < max) {
		while (alive > 0 && waitpid(-1, NULL, alive >= 4 ? 0 : WNOHANG) > 0)
			alive--;
		if (rate > 0 && (double)children > (double)(wall_ns() - start) * 1e-9 * rate) {
			sleep_s(0.0005);
			continue;
		}
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint64_t mine = burn / 2 + burn * ((random >> 33) % 1001) / 1000;
		pid_t child = fork();
		if (child == -1)
			break;
		if (child == 0) {
			child_watchdog(10, self);
			prctl(PR_SET_NAME, "forked");
			volatile uint64_t sink = root_of_stack(forked_hot, &mine);
			(void)sink;
			atomic_fetch_add(&shared->cpu_ns, process_cpu_ns());
			atomic_fetch_add(&shared->ended, 1);
			_exit(0);
		}
		alive++;
		children++;
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	printf("{\"program\":\"forker\",\"pid\":%d,\"children\":%lu,\"ended\":%lu,\"children_cpu_ns\":%lu,\"own_cpu_ns\":%lu}\n",
	       getpid(), children, shared->ended, shared->cpu_ns, process_cpu_ns());
	return 0;
}
