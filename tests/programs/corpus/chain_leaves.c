/* The leaves of chain. */
#include "corpus.h"
#include "chain.h"

DEFINE_LEAF(leaf_a)
DEFINE_LEAF(leaf_b)
DEFINE_LEAF(leaf_c)
