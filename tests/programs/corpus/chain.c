/* chain: main;outer;middle;leaf_a 50 %, main;outer;middle;leaf_b 30 %, main;outer;leaf_c 20 %.
 * Compiled in every way that changes how it must be unwound; see corpus.mk. */
#include "corpus.h"
#include "chain.h"

FUNCTION uint64_t outer(uint64_t unit, uint64_t x)
{
	uint64_t kept[3] = { x, unit, x ^ unit };
	x = middle(unit, x);
	RUBBISH;
	x = leaf_c(20 * unit, x + kept[unit % 3]);
	STAY;
	return x;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	uint64_t x = 88172645463325252u;
	for (uint64_t unit; (unit = next_turn(&course));) {
		x = outer(unit, x);
		STAY;
	}
	return done("chain", &course) + (x == 42);
}
