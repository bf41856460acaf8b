/* big: main;big_enter;(100 frames all over 100 MB of code);big_leaf. rbp is not kept by the code of big.S: big_enter saves it. */
#include "corpus.h"

static struct course course;

uint64_t big_chain(void);

LEAF uint64_t big_leaf(void)
{
	uint64_t x = 1;
	for (uint64_t unit; (unit = next_turn(&course));)
		x = burn(100 * unit, x);
	return x;
}

FUNCTION uint64_t big_enter(void)
{
	RUBBISH;
	uint64_t x = big_chain();
	RUBBISH;
	return x;
}

int main(int argc, char **argv)
{
	course = course_of(argc, argv);
	volatile uint64_t x = big_enter();
	(void)x;
	return done("big", &course);
}
