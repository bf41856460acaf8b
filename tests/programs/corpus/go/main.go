// gopher CPU_MS: runtime.goexit;runtime.main;main.main;main.outer;main.middle;main.leafA 50 %, main.outer;main.leafB 20 %, and
// goroutines: runtime.goexit;(...);main.inGoroutine;main.leafC 30 %, with the allocations and the collector's work of both.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

//go:noinline
func burn(n, x uint64) uint64 {
	for i := uint64(0); i < n; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func leafA(n uint64) uint64 { return burn(n, 1) + 1 }

//go:noinline
func leafB(n uint64) uint64 { return burn(n, 2) + 1 }

//go:noinline
func leafC(n uint64) uint64 { return burn(n, 3) + 1 }

//go:noinline
func middle(unit uint64) uint64 { return leafA(50*unit) + 1 }

type byRest []uint64

func (v byRest) Len() int           { return len(v) }
func (v byRest) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v byRest) Less(i, j int) bool { return leafB(20)%7+v[i]%31 < v[j]%31 }

//go:noinline
func outer(unit uint64) uint64 {
	x := middle(unit)
	values := make(byRest, 16)
	for i := range values {
		values[i] = uint64(i)*7919 + unit
	}
	sort.Sort(values)
	return x + values[0]
}

var held [][]byte

//go:noinline
func inGoroutine(unit uint64) uint64 {
	garbage := make([]byte, 1000+unit)
	return leafC(30*unit) + uint64(garbage[unit])
}

// grow makes its goroutine's stack move: deeper than the first 8 KiB.
//
//go:noinline
func grow(depth int, unit uint64) uint64 {
	var room [64]uint64
	room[unit%64] = unit
	if depth == 0 {
		return leafB(5 * unit)
	}
	return grow(depth-1, unit) + room[depth%64]
}

func main() {
	ms := 2000
	if len(os.Args) > 1 {
		ms, _ = strconv.Atoi(os.Args[1])
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	random, sink, turns := uint64(12345), uint64(0), 0
	for time.Now().Before(end) {
		random = random*6364136223846793005 + 1442695040888963407
		unit := 150 + (random>>33)%251
		sink += outer(unit)
		if unit%16 == 0 {
			var all sync.WaitGroup
			for i := 0; i < 4; i++ {
				all.Add(1)
				go func() {
					defer all.Done()
					inGoroutine(unit)
					if unit%32 == 0 {
						grow(100, unit)
					}
				}()
			}
			all.Wait()
		}
		turns++
	}
	fmt.Printf("{\"program\":\"gopher\",\"pid\":%d,\"turns\":%d,\"sink\":%t}\n", os.Getpid(), turns, sink == 42)
}
