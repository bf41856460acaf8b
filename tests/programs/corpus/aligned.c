/* aligned: frames that know their caller by another register than the stack pointer. main;aligned;aligned_leaf (a 64-byte
 * aligned array: the compiler realigns the stack and remembers the caller's through a pointer), main;variable;variable_leaf (an
 * array of variable length), main;both;both_leaf (both, with an alloca in a loop), main;spilled;spilled_leaf (AVX registers
 * kept over the call). A quarter each. */
#include "corpus.h"
#include <alloca.h>

DEFINE_LEAF(aligned_leaf)
DEFINE_LEAF(variable_leaf)
DEFINE_LEAF(both_leaf)
DEFINE_LEAF(spilled_leaf)

static volatile uint64_t sink;

FUNCTION void fill(volatile unsigned char *bytes, size_t count) { bytes[count / 2] = (unsigned char)count; }

FUNCTION void aligned(uint64_t unit)
{
	unsigned char array[256] __attribute__((aligned(64)));
	fill(array, sizeof array);
	sink += aligned_leaf(25 * unit, array[128]);
	fill(array, 64);
}

FUNCTION void variable(uint64_t unit)
{
	unsigned char array[unit];
	fill(array, unit);
	sink += variable_leaf(25 * unit, array[unit / 2]);
	fill(array, unit);
}

FUNCTION void both(uint64_t unit, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t on_stack)
{
	unsigned char array[128] __attribute__((aligned(64)));
	fill(array, sizeof array);
	for (uint64_t i = 0; i < unit % 4; i++)
		fill(alloca(64 + i), 64);
	sink += both_leaf(25 * unit, array[64] + a + b + c + d + e + on_stack);
	fill(array, 64);
}

typedef double four __attribute__((vector_size(32)));

FUNCTION __attribute__((target("avx"))) void spilled(uint64_t unit)
{
	four a = { 1, 2, 3, (double)unit }, b = a * a, c = b + a;
	sink += spilled_leaf(25 * unit, sink);
	four d = a * b + c;
	sink += (uint64_t)d[unit % 4];
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	for (uint64_t unit; (unit = next_turn(&course));) {
		aligned(unit);
		variable(unit);
		both(unit, 1, 2, 3, 4, 5, 6);
		if (__builtin_cpu_supports("avx"))
			spilled(unit);
	}
	return done("aligned", &course);
}
