/* manymaps [--maps N] [--seconds S]: N executable mappings of one file (its own: every second page of a large mapping is made
 * readable only, so that neighbours are not joined), then main;outer;middle;leaf_a as in chain, while one mapping
 * comes and goes each turn. Says how many there are. */
#include "corpus.h"
#include "chain.h"

static char *area;
static uint64_t pages;

FUNCTION uint64_t outer(uint64_t unit, uint64_t x)
{
	x = middle(unit, x);
	RUBBISH;
	x = leaf_c(20 * unit, x);
	uint64_t page = unit % pages;
	mprotect(area + page * 4096, 4096, PROT_READ);
	mprotect(area + page * 4096, 4096, page % 2 ? PROT_READ : PROT_READ | PROT_EXEC);
	return x;
}

int main(int argc, char **argv)
{
	double seconds = number(argc, argv, "--seconds", 3);
	pages = (uint64_t)number(argc, argv, "--maps", 60000);
	watchdog((unsigned)seconds + 60);
	int fd = memfd_create("pages", MFD_CLOEXEC);
	if (fd == -1 || ftruncate(fd, (off_t)(pages * 4096)))
		die("memfd");
	area = mmap(NULL, pages * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	if (area == MAP_FAILED)
		die("mmap");
	uint64_t made = 1;
	for (uint64_t page = 0; page < pages; page += 2, made += 2)
		if (mprotect(area + page * 4096, 4096, PROT_READ | PROT_EXEC)) {
			if (errno != ENOMEM)
				die("mprotect");
			break;
		}
	printf("{\"program\":\"manymaps\",\"event\":\"ready\",\"pid\":%d,\"mappings\":%lu}\n", getpid(), (unsigned long)made);
	fflush(stdout);
	struct course course = { UINT64_MAX, 12345, 0 };
	uint64_t x = 1, end = wall_ns() + (uint64_t)(seconds * 1e9);
	while (wall_ns() < end)
		x = outer(next_turn(&course), x);
	printf("{\"program\":\"manymaps\",\"pid\":%d,\"mappings\":%lu,\"process_cpu_ns\":%lu}\n", getpid(), (unsigned long)made,
	       (unsigned long)process_cpu_ns() + (x == 42));
	return 0;
}
