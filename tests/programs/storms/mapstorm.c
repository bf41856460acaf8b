/* mapstorm [--maps N] [--seconds S]: N executable mappings (default 100,000, or what vm.max_map_count allows) of one file in one process, made as
 * fast as can be; then its code is run in one after the other, 100 of them are mapped anew each millisecond, and CPU time is spent in
 * all. Prints how many there were and how many times one was made. */
#include "../program.h"

#if defined(__x86_64__)
/* lea -1(%rdi), %rdi; test %rdi, %rdi; jne back; ret: counts its argument down. */
static const unsigned char CODE[] = { 0x48, 0x8d, 0x7f, 0xff, 0x48, 0x85, 0xff, 0x75, 0xf7, 0xc3 };
#elif defined(__aarch64__)
/* subs x0, x0, #1; b.ne back; ret */
static const uint32_t CODE[] = { 0xf1000400, 0x54ffffe1, 0xd65f03c0 };
#endif

enum { PAGE = 4096 };

static char *area;
static int file;

/* Neighbours are not joined, for their pages do not follow one another in the file. */
static int make(uint64_t at)
{
	void *place = mmap(area + at * PAGE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, (off_t)(at % 2 * 2 * PAGE));
	return place == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv)
{
	uint64_t maps = (uint64_t)number(argc, argv, "--maps", 100000), made = 0, again = 0;
	double seconds = number(argc, argv, "--seconds", 10);
	watchdog((unsigned)seconds + 60);
	file = memfd_create("mapstorm", MFD_CLOEXEC);
	if (file == -1 || ftruncate(file, 4 * PAGE) || pwrite(file, CODE, sizeof CODE, 0) < 0 ||
	    pwrite(file, CODE, sizeof CODE, 2 * PAGE) < 0)
		die("memfd");
	area = mmap(NULL, maps * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		die("mmap");
	uint64_t start = wall_ns(), end = start + (uint64_t)(seconds * 1e9);
	while (made < maps && make(made) == 0)
		made++;
	if (made < maps) {
		/* At the limit even a mapping that replaces another finds no room: some are given up. */
		if (errno != ENOMEM || made < 200)
			die("mmap");
		made -= 100;
		munmap(area + made * PAGE, (maps - made) * PAGE);
	}
	double took = (double)(wall_ns() - start) * 1e-9;
	uint64_t next = wall_ns();
	for (uint64_t turn = 0; wall_ns() < end; turn++) {
		void (*code)(uint64_t);
		void *address = area + turn * 7919 % made * PAGE;
		memcpy(&code, &address, sizeof code);
		code(20000);
		if (wall_ns() >= next) {
			next += 1000000;
			for (uint64_t i = 0; i < 100; i++, again++)
				if (make((again * 31) % made))
					die("mmap again");
		}
	}
	printf("{\"program\":\"mapstorm\",\"pid\":%d,\"maps\":%lu,\"seconds_to_map\":%.3f,\"events\":%lu,\"per_s\":%.0f}\n", getpid(),
	       (unsigned long)made, took, (unsigned long)(made + again), (double)(made + again) / seconds);
	return 0;
}
