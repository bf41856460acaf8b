/* execer [--cpu-ms MS] [--seconds S]
 *
 * A child executes this program anew, burns MS of CPU time in execer_hot and has exited long before the profile ends. The
 * parent sleeps S seconds. The child must still be named.
 */
#include "program.h"

HOT uint64_t execer_hot(void *argument)
{
	uint64_t limit = *(uint64_t *)argument, x = 1;
	while (process_cpu_ns() < limit)
		x = spin(5000, x);
	return x;
}

int main(int argc, char **argv)
{
	double ms = number(argc, argv, "--cpu-ms", 300), seconds = number(argc, argv, "--seconds", 2);
	watchdog((unsigned)(seconds + 30));
	if (flag(argc, argv, "--child")) {
		uint64_t ns = (uint64_t)(ms * 1e6);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "execed");
		root_of_stack(execer_hot, &ns);
		return 0;
	}
	pid_t child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "execer", "--child", "--cpu-ms", option(argc, argv, "--cpu-ms", "300"), (char *)NULL);
		_exit(98);
	}
	int status = 0;
	waitpid(child, &status, 0);
	printf("{\"program\":\"execer\",\"pid\":%d,\"child\":%d,\"child_ok\":%s}\n", getpid(), child, status == 0 ? "true" : "false");
	fflush(stdout);
	sleep_s(seconds);
	return 0;
}
