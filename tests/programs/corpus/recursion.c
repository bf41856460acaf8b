/* recursion N: main;descend x N;bottom_leaf, frames of different sizes. All time at the bottom, chain built once. */
#include "corpus.h"

static struct course course;

LEAF uint64_t bottom_leaf(uint64_t x)
{
	for (uint64_t unit; (unit = next_turn(&course));)
		x = burn(100 * unit, x);
	return x;
}

FUNCTION uint64_t descend(int depth, uint64_t x)
{
	volatile uint64_t room[4];
	room[depth % 4] = x;
	RUBBISH;
	x = depth > 1 ? descend(depth - 1, x) : bottom_leaf(x);
	STAY;
	return x + room[depth % 4];
}

int main(int argc, char **argv)
{
	course = course_of(argc, argv);
	volatile uint64_t x = descend(argc > 1 ? atoi(argv[1]) : 900, 88172645463325252u);
	(void)x;
	return done("recursion", &course);
}
