/* callbacks: the program's own code called by code of libc and libstdc++, which was compiled by others without frame
 * pointers. by_qsort;...;compare_c;compare_leaf, by_std_sort;...;compare_cpp_leaf, by_function;...;function_leaf,
 * by_virtual;Derived::call;virtual_leaf, by_stream;(libstdc++);Counting::overflow;stream_leaf, by_once;...;once_leaf, and
 * by_thread, whose root is a thread's: (libc);(libstdc++);...;thread_leaf. */
#include "corpus.h"
#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <thread>
#include <vector>

extern "C" {
DEFINE_LEAF(compare_leaf)
DEFINE_LEAF(compare_cpp_leaf)
DEFINE_LEAF(function_leaf)
DEFINE_LEAF(virtual_leaf)
DEFINE_LEAF(stream_leaf)
DEFINE_LEAF(once_leaf)
DEFINE_LEAF(thread_leaf)
}

static uint64_t sink;

extern "C" FUNCTION int compare_c(const void *a, const void *b)
{
	sink += compare_leaf(200, sink);
	RUBBISH;
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

struct Base {
	virtual ~Base() = default;
	virtual uint64_t call(uint64_t unit) = 0;
};
struct Derived : Base {
	FUNCTION uint64_t call(uint64_t unit) override
	{
		uint64_t x = virtual_leaf(10 * unit, sink);
		RUBBISH;
		return x;
	}
};

/* A stream without a buffer: each character is one call of overflow by libstdc++. */
struct Counting : std::streambuf {
	FUNCTION int_type overflow(int_type c) override
	{
		sink += stream_leaf(400, sink);
		RUBBISH;
		return c;
	}
};

static std::vector<int> shuffled(uint64_t unit)
{
	std::vector<int> values(16);
	for (size_t i = 0; i < values.size(); i++)
		values[i] = (int)((i * 7919 + unit) % 31);
	return values;
}

extern "C" {
FUNCTION void by_qsort(uint64_t unit)
{
	std::vector<int> values = shuffled(unit);
	qsort(values.data(), values.size(), sizeof(int), compare_c);
	STAY;
}

FUNCTION bool compare_cpp(int a, int b)
{
	sink += compare_cpp_leaf(200, sink);
	STAY;
	return a < b;
}

FUNCTION void by_std_sort(uint64_t unit)
{
	std::vector<int> values = shuffled(unit);
	std::stable_sort(values.begin(), values.end(), compare_cpp);
	STAY;
}

FUNCTION void by_function(std::function<uint64_t(uint64_t)> *f, uint64_t unit)
{
	sink += (*f)(unit);
	STAY;
}

FUNCTION void by_virtual(Base *base, uint64_t unit)
{
	sink += base->call(unit);
	STAY;
}

FUNCTION void by_stream(std::ostream *out, uint64_t unit)
{
	*out << (unsigned long)unit << ' ' << 0.5;
	STAY;
}

FUNCTION void by_once(uint64_t unit)
{
	std::once_flag once;
	std::call_once(once, [unit] {
		sink += once_leaf(10 * unit, sink);
		STAY;
	});
	STAY;
}

FUNCTION void by_thread(uint64_t unit)
{
	std::thread thread([unit] {
		sink += thread_leaf(100 * unit, sink);
		STAY;
	});
	thread.join();
	STAY;
}
}

int main(int argc, char **argv)
{
	struct course course = course_of(argc, argv);
	std::function<uint64_t(uint64_t)> function = [](uint64_t unit) {
		uint64_t x = function_leaf(10 * unit, sink);
		STAY;
		return x;
	};
	std::unique_ptr<Base> base = std::make_unique<Derived>();
	Counting counting;
	std::ostream out(&counting);
	for (uint64_t unit; (unit = next_turn(&course));) {
		by_qsort(unit);
		by_std_sort(unit);
		by_function(&function, unit);
		by_virtual(base.get(), unit);
		by_stream(&out, unit);
		by_once(unit);
		if (unit % 8 == 0)
			by_thread(unit);
	}
	return done("callbacks", &course);
}
