package lifecycle

import (
	"runtime"
	"testing"
)

func TestTheGoalRisesWithWhatLives(t *testing.T) {
	for live, want := range map[uint64]int64{0: memoryGoal, memoryGoal / 2: memoryGoal, 200 << 20: 300 << 20, 1 << 63: 1<<63 - 1} {
		if got := goalFor(live); got != want {
			t.Errorf("%d live: %d, want %d", live, got, want)
		}
	}
}

func TestAfterEachCollection(t *testing.T) {
	called := make(chan struct{})
	done := make(chan struct{})
	defer close(done)
	afterEachCollection(func() {
		select {
		case called <- struct{}{}:
		case <-done:
		}
	})
	for range 3 {
		for again := true; again; {
			select {
			case <-called:
				again = false
			default:
				runtime.GC()
			}
		}
	}
}
