package lifecycle

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// memoryGoal is the memory that the server tries to stay within, in bytes. A server at
// rest uses far less; it comes near the goal while it copies large texts.
const memoryGoal = 144 << 20

// KeepSmall makes the garbage collector run earlier when the process comes near memoryGoal, where
// it would otherwise let the heap grow to a multiple of the live bytes. If the live bytes come near
// the goal, the goal rises, so that the collector never runs all the time. Below the goal nothing
// changes.
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

// goalFor returns the goal of a process with this many live bytes.
func goalFor(live uint64) int64 {
	if live > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return max(memoryGoal, int64(live+live/2))
}

// afterEachCollection calls do after each garbage collection: each one collects an
// object that nothing refers to.
func afterEachCollection(do func()) {
	runtime.AddCleanup(new(*int), func(do func()) {
		do()
		afterEachCollection(do)
	}, do)
}
