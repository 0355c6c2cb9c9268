package search

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// unindexed knows which sessions have entries that are not searchable yet.
type unindexed struct {
	mu sync.Mutex
	// dirty wait; busy are with the follower.
	dirty, busy map[holdfast.SessionID]bool
	// waiters are closed when nothing waits any more.
	waiters []chan struct{}
	wake    chan struct{} // capacity 1: a session is dirty
	hurry   chan struct{} // capacity 1: somebody waits in settle
}

func newUnindexed() *unindexed {
	return &unindexed{
		// The empty id stands for the sessions of an earlier server, until they are known.
		dirty: map[holdfast.SessionID]bool{}, busy: map[holdfast.SessionID]bool{"": true},
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
}

// touch notes sessions whose log has grown.
func (u *unindexed) touch(ids ...holdfast.SessionID) {
	if len(ids) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		u.dirty[id] = true
	}
	poke(u.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take gives some sessions to the follower, none when nothing is left to do.
func (u *unindexed) take() []holdfast.SessionID {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.dirty {
		if len(u.busy) == indexRows {
			break
		}
		u.busy[id] = true
		delete(u.dirty, id)
	}
	return slices.Collect(maps.Keys(u.busy))
}

// done ends the work on the sessions of the last take. Those in again have more to index.
func (u *unindexed) done(again ...holdfast.SessionID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.busy)
	for _, id := range again {
		u.dirty[id] = true
	}
	if len(u.dirty) > 0 {
		poke(u.wake)
		return
	}
	u.release()
}

// release wakes all that wait in settle.
func (u *unindexed) release() {
	for _, w := range u.waiters {
		close(w)
	}
	u.waiters = nil
}

// close wakes all that wait, when the follower ends.
func (u *unindexed) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.release()
}

func (u *unindexed) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.dirty) + len(u.busy)
}

// settle waits until what was written before is searchable, within patience.
func (u *unindexed) settle(ctx context.Context, patience time.Duration) {
	u.mu.Lock()
	if len(u.dirty)+len(u.busy) == 0 {
		u.mu.Unlock()
		return
	}
	w := make(chan struct{})
	u.waiters = append(u.waiters, w)
	poke(u.hurry)
	u.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-w:
	case <-late.C:
	case <-ctx.Done():
	}
}

// hurried reports whether somebody waits.
func (u *unindexed) hurried() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waiters) > 0
}
