/* closer [--ms MS] [--code C]
 *
 * Closes every descriptor that it inherited, standard ones included, burns CPU in closer_hot for MS and exits with C. Whoever started
 * it must not take the closed descriptors for its end.
 */
#include "program.h"

HOT uint64_t closer_hot(void *argument)
{
	uint64_t end = wall_ns() + *(uint64_t *)argument, x = 1;
	while (wall_ns() < end)
		x = spin(5000, x);
	return x;
}

int main(int argc, char **argv)
{
	uint64_t ns = (uint64_t)(number(argc, argv, "--ms", 500) * 1e6);
	watchdog(60);
	for (int fd = 0; fd < 1024; fd++)
		close(fd);
	root_of_stack(closer_hot, &ns);
	return (int)number(argc, argv, "--code", 0);
}
