package search

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// unindexed is the set of sessions with entries that are not searchable yet.
type unindexed struct {
	mu sync.Mutex
	// dirty are the sessions that wait to be indexed; busy are those that the follower is
	// indexing now.
	dirty, busy map[holdfast.SessionID]bool
	// waiters are the channels on which callers of settle wait; they are closed once all sessions are indexed.
	waiters []chan struct{}
	wake    chan struct{} // capacity 1; signals that a session waits to be indexed
	hurry   chan struct{} // capacity 1; signals that a caller waits in settle
}

func newUnindexed() *unindexed {
	return &unindexed{
		// The empty id stands for the sessions that an earlier server left with unindexed entries, until
		// recovered finds them.
		dirty: map[holdfast.SessionID]bool{}, busy: map[holdfast.SessionID]bool{"": true},
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
	}
}

// touch adds sessions whose log has grown, and wakes the follower.
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

// take returns some sessions for the follower to index and marks them busy; empty if none is
// left to index.
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

// done marks the sessions that take returned last as no longer busy. The sessions in again have more entries to index.
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

// release wakes all callers that wait in settle.
func (u *unindexed) release() {
	for _, w := range u.waiters {
		close(w)
	}
	u.waiters = nil
}

// close wakes all callers that wait in settle. It runs when the follower ends.
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

// settle waits until all entries are searchable, at most for patience or until ctx ends.
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

// hurried reports whether a caller waits in settle.
func (u *unindexed) hurried() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waiters) > 0
}
