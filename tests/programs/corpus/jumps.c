/* jumps: main;turn;descend x 20;jump_leaf 50 %, then longjmp out of all of them; main;turn;landed_leaf 50 %. */
#include "corpus.h"
#include <setjmp.h>

#pragma GCC diagnostic ignored "-Winfinite-recursion" /* it ends by longjmp */

DEFINE_LEAF(jump_leaf)
DEFINE_LEAF(landed_leaf)

static jmp_buf back;
static volatile uint64_t sink;

FUNCTION void descend(int depth, uint64_t unit)
{
	volatile uint64_t room[8];
	room[depth % 8] = unit;
	RUBBISH;
	if (depth > 1) {
		descend(depth - 1, room[depth % 8]);
		STAY;
		return;
	}
	sink += jump_leaf(50 * unit, sink);
	longjmp(back, 1);
}

FUNCTION void turn(uint64_t unit)
{
	volatile uint64_t kept = unit;
	if (setjmp(back) == 0)
		descend(20, unit);
	sink += landed_leaf(50 * kept, sink);
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	for (uint64_t unit; (unit = next_turn(&course));)
		turn(unit);
	return done("jumps", &course);
}
