/* libreuse_a.so (WHICH_A) and libreuse_b.so: same addresses, other frames, other names. */
#include "corpus.h"

#ifdef WHICH_A
#define ROOM 4
#define SHARE 70
#define LEAF_NAME reuse_a_leaf
#define OUTER_NAME reuse_a
#else
#define ROOM 60
#define SHARE 30
#define LEAF_NAME reuse_b_leaf
#define OUTER_NAME reuse_b
#endif

DEFINE_LEAF(LEAF_NAME)

FUNCTION __attribute__((aligned(256))) uint64_t OUTER_NAME(uint64_t unit)
{
	volatile uint64_t room[ROOM];
	room[unit % ROOM] = unit;
	RUBBISH;
	uint64_t x = 0;
	for (int i = 0; i < 100; i++)
		x = LEAF_NAME(SHARE * unit, x + room[unit % ROOM]);
	STAY;
	return x;
}
