/* The middle of chain: for c_no_eh compiled with frame pointers and without any unwind information. */
#include "corpus.h"
#include "chain.h"

FUNCTION uint64_t middle(uint64_t unit, uint64_t x)
{
	volatile uint64_t wide[24];
	for (int i = 0; i < 24; i++)
		wide[i] = x + (uint64_t)i;
	x = leaf_a(50 * unit, x);
	RUBBISH;
	x = leaf_b(30 * unit, x + wide[unit % 24]);
	STAY;
	return x;
}
