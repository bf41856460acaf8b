/* deleted --dir DIR [--seconds S]
 *
 * Copies itself to DIR/deleted-copy, executes the copy, which removes its own file and then burns CPU in deleted_hot.
 */
#include "program.h"

HOT uint64_t deleted_hot(void *argument)
{
	uint64_t end = wall_ns() + *(uint64_t *)argument, x = 1;
	while (wall_ns() < end)
		x = spin(5000, x);
	return x;
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 30));
	if (flag(argc, argv, "--copy")) {
		uint64_t ns = (uint64_t)(seconds * 1e9);
		if (unlink(argv[0]))
			die("unlink");
		printf("{\"program\":\"deleted\",\"event\":\"ready\",\"pid\":%d}\n", getpid());
		fflush(stdout);
		root_of_stack(deleted_hot, &ns);
		return 0;
	}
	const char *dir = option(argc, argv, "--dir", NULL);
	if (!dir)
		return 97;
	char path[4096];
	snprintf(path, sizeof path, "%s/deleted-copy", dir);
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	if (from == -1 || to == -1)
		die(path);
	char block[65536];
	ssize_t got;
	while ((got = read(from, block, sizeof block)) > 0)
		if (write(to, block, (size_t)got) != got)
			die("write");
	close(to);
	execl(path, path, "--copy", "--seconds", option(argc, argv, "--seconds", "5"), (char *)NULL);
	die("exec");
	return 98;
}
