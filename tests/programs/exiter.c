/* exiter [--after-ms MS] [--code C] [--signal N] [--burn] [--ignore SIGNAL]
 *
 * Ends with exit code C or killed by signal N, at once or after MS milliseconds, asleep or burning CPU in exiter_hot.
 */
#include "program.h"

HOT uint64_t exiter_hot(void *argument)
{
	uint64_t end = wall_ns() + *(uint64_t *)argument, x = 1;
	while (wall_ns() < end)
		x = spin(5000, x);
	return x;
}

int main(int argc, char **argv)
{
	double ms = number(argc, argv, "--after-ms", 0);
	int code = (int)number(argc, argv, "--code", 0), signal_number = (int)number(argc, argv, "--signal", 0);
	uint64_t ns = (uint64_t)(ms * 1e6);
	watchdog((unsigned)(ms / 1000 + 30));
	int ignored = (int)number(argc, argv, "--ignore", 0);
	if (ignored)
		signal(ignored, SIG_IGN);
	if (ns && flag(argc, argv, "--burn"))
		root_of_stack(exiter_hot, &ns);
	else if (ns)
		sleep_s(ms / 1000);
	if (signal_number) {
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		kill(getpid(), signal_number);
		sleep_s(1);
	}
	return code;
}
