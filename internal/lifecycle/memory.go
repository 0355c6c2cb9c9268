package lifecycle

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// memoryGoal is the memory that the server tries to stay within, in bytes. It is far
// above what it takes at rest, and reached while large texts are copied about.
const memoryGoal = 144 << 20

// KeepSmall makes the collector work earlier when the process comes near memoryGoal,
// where it would let the heap grow to a multiple of what lives. What lives may be
// more than the goal: then the goal rises with it, so that the collector never works
// all the time. Below the goal nothing changes.
func KeepSmall() {
	debug.SetMemoryLimit(memoryGoal)
	var now atomic.Int64
	now.Store(memoryGoal)
	afterEachCollection(func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		if goal := goalFor(live[0].Value.Uint64()); now.Swap(goal) != goal {
			debug.SetMemoryLimit(goal)
		}
	})
}

// goalFor is the goal of a process in which so many bytes live.
func goalFor(live uint64) int64 {
	if live > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return max(memoryGoal, int64(live+live/2))
}

// afterEachCollection calls do after each garbage collection, which collects an
// object that nothing refers to.
func afterEachCollection(do func()) {
	runtime.AddCleanup(new(*int), func(do func()) {
		do()
		afterEachCollection(do)
	}, do)
}
