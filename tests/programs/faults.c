/* faults --pages N
 *
 * Waits for a byte on stdin, touches N pages for the first time, and says how many page faults the kernel has counted for it meanwhile. Waits
 * for the end of stdin.
 */
#include "program.h"

static uint64_t faults_so_far(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

/* Without the C library's buffers: nothing here is touched for the first time. */
static void say(uint64_t faults)
{
	static char line[64];
	int bytes = snprintf(line, sizeof line, "{\"faults\":%lu}\n", faults);
	if (write(1, line, (size_t)bytes) != bytes)
		_exit(97);
}

int main(int argc, char **argv)
{
	size_t pages = (size_t)number(argc, argv, "--pages", 10007), page = (size_t)sysconf(_SC_PAGESIZE);
	watchdog(60);
	volatile char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || madvise((void *)memory, pages * page, MADV_NOHUGEPAGE))
		die("mmap");
	char byte;
	say(faults_so_far());
	uint64_t before = faults_so_far();
	if (read(0, &byte, 1) != 1)
		return 97;
	for (size_t i = 0; i < pages; i++)
		memory[i * page] = 1;
	say(faults_so_far() - before);
	while (read(0, &byte, 1) == 1)
		;
	return 0;
}
