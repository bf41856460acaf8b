/* What the programs of the corpus share: code as compilers make it when nobody thinks of profilers.
 *
 * No frame pointers (the Makefile says where there are some), no tail calls, nothing inlined that a test looks for. Shares are
 * exact by counted iterations of one loop, as in split.c. A program ends when its process has used --cpu-ms of CPU time
 * (default 2000). Options, clocks and watchdog are those of program.h.
 */
#ifndef CORPUS_H
#define CORPUS_H

/* A program of several files: the functions of program.h that are no inline functions would be there twice. */
#define WITHOUT_ROOT_OF_STACK
#include "../program.h"

/* Never inlined, cloned or merged, and nobody may know what it returns. */
#if defined(__clang__)
#define FUNCTION __attribute__((noinline, used))
#else
#define FUNCTION __attribute__((noipa, used))
#endif
/* The same with the alignment of every other hot loop. */
#define LEAF FUNCTION __attribute__((aligned(64)))
/* After a call: it is no tail call. */
#define STAY __asm__ volatile("" ::: "memory")

/* The frame pointer register becomes an ordinary one with rubbish in it: who follows it is lost. */
#if defined(__x86_64__) && !defined(KEEPS_FRAME_POINTERS)
#define RUBBISH __asm__ volatile("movabs $0x5a5a5a5a5a5a5a58, %%rbp" ::: "rbp", "memory")
#elif defined(__aarch64__) && !defined(KEEPS_FRAME_POINTERS)
#define RUBBISH __asm__ volatile("mov x29, #0x5a58" ::: "x29", "memory")
#else
#define RUBBISH STAY
#endif

/* The inner loop of program.h, without a frame. */
static inline __attribute__((always_inline)) uint64_t burn(uint64_t iterations, uint64_t x)
{
	for (uint64_t i = 0; i < iterations; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

/* One leaf: burns, and is itself where the time is. */
#define DEFINE_LEAF(name) \
	LEAF uint64_t name(uint64_t iterations, uint64_t x) \
	{ \
		x = burn(iterations, x ^ __LINE__); \
		STAY; \
		return x; \
	}

/* How long, in turns of some 50 us each with a pseudo-random length, so that no period falls into step with them. */
struct course {
	uint64_t cpu_ns_end, random, turns;
};

static inline struct course course_of(int argc, char **argv)
{
	watchdog(60);
	struct course course = { (uint64_t)(number(argc, argv, "--cpu-ms", 2000) * 1e6), 12345, 0 };
	return course;
}

/* The length of the next turn: 150 to 400; 0 at the end. */
static inline uint64_t next_turn(struct course *course)
{
	if (++course->turns % 64 == 0 && process_cpu_ns() >= course->cpu_ns_end)
		return 0;
	course->random = course->random * 6364136223846793005u + 1442695040888963407u;
	return 150 + (course->random >> 33) % 251;
}

/* The same for turns that take longer: looks at the clock each time. */
static inline uint64_t next_long_turn(struct course *course)
{
	course->turns |= 63;
	return next_turn(course);
}

/* The line of truth. */
static inline int done(const char *program, const struct course *course)
{
	printf("{\"program\":\"%s\",\"pid\":%d,\"turns\":%lu,\"process_cpu_ns\":%lu}\n", program, getpid(),
	       (unsigned long)course->turns, (unsigned long)process_cpu_ns());
	return 0;
}

#endif
