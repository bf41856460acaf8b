/* contexts: three ucontext coroutines, each on a stack of its own with (libc's __start_context) as root: fiber;in_fiber;
 * fiber_leaf 75 %; and the scheduler's own main;schedule;schedule_leaf 25 %. */
#include "corpus.h"
#include <ucontext.h>

DEFINE_LEAF(fiber_leaf)
DEFINE_LEAF(schedule_leaf)

enum { FIBERS = 3 };
static ucontext_t home, fibers[FIBERS];
static volatile uint64_t sink, unit_now;

FUNCTION void in_fiber(void)
{
	sink += fiber_leaf(25 * unit_now, sink);
	RUBBISH;
}

FUNCTION void fiber(int number)
{
	for (;;) {
		in_fiber();
		swapcontext(&fibers[number], &home);
	}
}

FUNCTION void schedule(uint64_t unit)
{
	unit_now = unit;
	for (int i = 0; i < FIBERS; i++)
		swapcontext(&home, &fibers[i]);
	sink += schedule_leaf(25 * unit, sink);
	STAY;
}

FUNCTION void make(int number)
{
	static char stacks[FIBERS][1 << 16] __attribute__((aligned(64)));
	if (getcontext(&fibers[number]))
		die("getcontext");
	fibers[number].uc_stack.ss_sp = stacks[number];
	fibers[number].uc_stack.ss_size = sizeof stacks[number];
	fibers[number].uc_link = &home;
	makecontext(&fibers[number], (void (*)(void))fiber, 1, number);
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	for (int i = 0; i < FIBERS; i++)
		make(i);
	for (uint64_t unit; (unit = next_turn(&course));)
		schedule(unit);
	return done("contexts", &course);
}
