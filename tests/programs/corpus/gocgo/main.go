// gopher_c CPU_MS: C called from Go, on the thread's own stack: ...;main.callC;...;runtime.cgocall;runtime.asmcgocall;(C);c_middle;
// c_leaf. The walk crosses from the C stack to the goroutine's.
package main

/*
#include <stdint.h>
#define LEAF __attribute__((noinline, noclone, used))
LEAF uint64_t c_leaf(uint64_t n, uint64_t x) {
	for (uint64_t i = 0; i < n; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; __asm__ volatile("" : "+r"(x)); }
	return x;
}
LEAF uint64_t c_middle(uint64_t n) { uint64_t x = c_leaf(n, 1); __asm__ volatile("" ::: "memory"); return x + 1; }
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

//go:noinline
func callC(n uint64) uint64 { return uint64(C.c_middle(C.uint64_t(n))) + 1 }

func main() {
	ms := 2000
	if len(os.Args) > 1 {
		ms, _ = strconv.Atoi(os.Args[1])
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	sink, turns := uint64(0), 0
	for time.Now().Before(end) {
		sink += callC(20000)
		turns++
	}
	fmt.Printf("{\"program\":\"gopher_c\",\"pid\":%d,\"turns\":%d,\"sink\":%t}\n", os.Getpid(), turns, sink == 42)
}
