uint64_t middle(uint64_t unit, uint64_t x);
uint64_t leaf_a(uint64_t iterations, uint64_t x);
uint64_t leaf_b(uint64_t iterations, uint64_t x);
uint64_t leaf_c(uint64_t iterations, uint64_t x);
