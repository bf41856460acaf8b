// inlined [--seconds S]
//
// Root first: root_of_stack, run, lf_demo::Mixer<unsigned long>::mix(unsigned long), and inlined into it
// lf_demo::outer_inline(unsigned long), lf_demo::inner_inline(unsigned long) and spin, where all the time is spent.
#include "program.h"

namespace lf_demo {
__attribute__((always_inline)) inline unsigned long inner_inline(unsigned long x)
{
	return spin(100000, x);
}

__attribute__((always_inline)) inline unsigned long outer_inline(unsigned long x)
{
	return inner_inline(x + 1);
}

template <class T> struct Mixer {
	T state = 1;
	HOT T mix(T x)
	{
		state = outer_inline(state + x);
		__asm__ volatile("" ::: "memory");
		return state;
	}
};
} // namespace lf_demo

static double seconds;

extern "C" NOINLINE uint64_t run(void *)
{
	lf_demo::Mixer<unsigned long> mixer;
	uint64_t end = wall_ns() + (uint64_t)(seconds * 1e9), x = 0;
	while (wall_ns() < end)
		x = mixer.mix(x);
	return x;
}

int main(int argc, char **argv)
{
	seconds = number(argc, argv, "--seconds", 5);
	watchdog((unsigned)(seconds + 30));
	volatile uint64_t sink = root_of_stack(run, nullptr);
	(void)sink;
	printf("{\"program\":\"inlined\",\"pid\":%d,\"cpu_ns\":%lu}\n", getpid(), process_cpu_ns());
	return 0;
}
