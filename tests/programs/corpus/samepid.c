/* samepid [--seconds S]: runs brief and brief_twin (the same program at other addresses, with other names) in turn under one and
 * the same process id (clone3 with set_tid). Prints how often the id was the same. Needs CAP_CHECKPOINT_RESTORE or root. */
#include "corpus.h"
#include <linux/sched.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 2);
	watchdog((unsigned)seconds + 30);
	char folder[2048], programs[2][2200];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
	if (length <= 0)
		die("/proc/self/exe");
	folder[length] = 0;
	*strrchr(folder, '/') = 0;
	snprintf(programs[0], sizeof programs[0], "%s/brief", folder);
	snprintf(programs[1], sizeof programs[1], "%s/brief_twin", folder);
	/* An id that is free now, and that was never handed out lately: one far from the counter. */
	pid_t wanted = 0;
	for (pid_t id = 30000 - (getpid() % 1000); id > 2000 && !wanted; id--)
		if (kill(id, 0) == -1 && errno == ESRCH)
			wanted = id;
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), children = 0, same = 0;
	for (; wall_ns() < end; children++) {
		struct clone_args arguments = { .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1 };
		long child = syscall(SYS_clone3, &arguments, sizeof arguments);
		if (child == -1)
			die("clone3");
		if (child == 0) {
			char *words[] = { programs[children % 2], "--ms", "4", NULL };
			execv(words[0], words);
			_exit(98);
		}
		int status;
		if (waitpid((pid_t)child, &status, 0) != child || status)
			die("child");
		same += child == wanted;
	}
	printf("{\"program\":\"samepid\",\"pid\":%d,\"id\":%d,\"children\":%lu,\"same\":%lu}\n", getpid(), wanted, (unsigned long)children,
	       (unsigned long)same);
	return 0;
}
