/* throws: main;run;catcher;dive x 10;thrower throws an exception that catcher catches, over and over. Most time goes into
 * the C++ runtime and the unwinder of libgcc, called from thrower; some into landing_leaf, called by the destructors
 * of dive while the stack is taken down, and caught_leaf (main;run;catcher;caught_leaf) afterwards. */
#include "corpus.h"
#include <stdexcept>

extern "C" {
DEFINE_LEAF(landing_leaf)
DEFINE_LEAF(caught_leaf)
}

static uint64_t sink;

struct Landing {
	uint64_t unit;
	~Landing() { sink += landing_leaf(unit, sink); }
};

extern "C" FUNCTION void thrower(uint64_t unit)
{
	RUBBISH;
	throw std::runtime_error(unit % 2 ? "odd" : "even");
}

extern "C" FUNCTION void dive(int depth, uint64_t unit)
{
	Landing landing { unit };
	if (depth > 1)
		dive(depth - 1, unit);
	else
		thrower(unit);
	STAY;
}

extern "C" FUNCTION void catcher(uint64_t unit)
{
	try {
		dive(10, unit);
	} catch (const std::exception &e) {
		sink += caught_leaf(10 * unit, (uint64_t)e.what()[0]);
	}
	STAY;
}

extern "C" FUNCTION void run(struct course *course)
{
	for (uint64_t unit; (unit = next_turn(course));)
		catcher(unit);
	STAY;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	run(&course);
	return done("throws", &course);
}
