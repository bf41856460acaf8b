/* coroutines: a C++20 coroutine resumed by main;drive;(its body);body_leaf 60 %, whose frame is on the heap but whose stack is the
 * caller's, and main;drive;drive_leaf 40 %. */
#include "corpus.h"
#include <coroutine>
#include <exception>

extern "C" {
DEFINE_LEAF(body_leaf)
DEFINE_LEAF(drive_leaf)
}

struct Task {
	struct promise_type {
		uint64_t value = 0;
		Task get_return_object() { return { std::coroutine_handle<promise_type>::from_promise(*this) }; }
		std::suspend_always initial_suspend() noexcept { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(uint64_t v) noexcept
		{
			value = v;
			return {};
		}
		void return_void() {}
		void unhandled_exception() { std::terminate(); }
	};
	std::coroutine_handle<promise_type> handle;
};

static volatile uint64_t unit_now;

static Task numbers()
{
	for (uint64_t x = 1;;) {
		x = body_leaf(60 * unit_now, x);
		co_yield x;
	}
}

extern "C" FUNCTION uint64_t drive(Task *task, uint64_t unit)
{
	unit_now = unit;
	task->handle.resume();
	RUBBISH;
	uint64_t x = drive_leaf(40 * unit, task->handle.promise().value);
	STAY;
	return x;
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	Task task = numbers();
	uint64_t sink = 0;
	for (uint64_t unit; (unit = next_turn(&course));)
		sink += drive(&task, unit);
	task.handle.destroy();
	return done("coroutines", &course) + (sink == 42);
}
