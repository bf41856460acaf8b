/* libraries: time inside libc's and libm's own code, much of it assembler: main;by_memory, main;by_text, main;by_math,
 * main;by_heap, main;by_print; and system calls: main;by_kernel. */
#include "corpus.h"
#include <ctype.h>
#include <math.h>

static volatile uint64_t sink;
static volatile double sum;
static char a[1 << 16], b[1 << 16];

FUNCTION void by_memory(uint64_t unit)
{
	for (uint64_t size = 1; size < sizeof a; size += size / 2 + 1) {
		memcpy(b, a, size);
		memmove(b + 1, b, size - 1);
		memset(a, (int)unit, size - 1);
		sink += (uint64_t)memcmp(a, b, size) + (uint64_t)(uintptr_t)memchr(b, 0x77, size);
	}
	STAY;
}

FUNCTION void by_text(uint64_t unit)
{
	memset(a, 'x', 4000 + unit);
	a[4000 + unit] = 0;
	sink += strlen(a) + (uint64_t)(uintptr_t)strchr(a, 'y') + (uint64_t)(uintptr_t)strstr(a, "xxy");
	strcpy(b, a);
	sink += (uint64_t)strcmp(a, b) + (uint64_t)strtol("123456", NULL, 10);
	STAY;
}

FUNCTION void by_math(uint64_t unit)
{
	for (uint64_t i = 1; i < unit; i++) {
		double x = (double)i / 7;
		sum += sin(x) + cos(x) + exp(-x) + log(x) + pow(x, 1.5) + atan2(x, 2) + tgamma(x / 40) + fmod(x, 3) + cbrt(x);
	}
	STAY;
}

FUNCTION void by_heap(uint64_t unit)
{
	void *held[64];
	for (int round = 0; round < 8; round++) {
		for (unsigned i = 0; i < 64; i++)
			held[i] = malloc((unit * (i + 1)) % 3000 + 1);
		for (unsigned i = 0; i < 64; i++)
			free(held[(i * 37) % 64]);
	}
	STAY;
}

FUNCTION void by_print(uint64_t unit)
{
	for (int i = 0; i < 20; i++) {
		int n = snprintf(b, 200, "%lu %f %s %-20p|%e", (unsigned long)unit, (double)unit / 3, "text", (void *)a, 1e300 / (double)unit);
		sum += strtod(b + n / 2, NULL);
	}
	STAY;
}

FUNCTION void by_kernel(uint64_t unit)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	for (uint64_t i = 0; i < unit / 4; i++)
		sink += (uint64_t)read(fd, a, 256);
	close(fd);
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	for (uint64_t unit; (unit = next_turn(&course));) {
		by_memory(unit);
		by_text(unit);
		by_math(unit);
		by_heap(unit);
		by_print(unit);
		by_kernel(unit);
	}
	return done("libraries", &course);
}
