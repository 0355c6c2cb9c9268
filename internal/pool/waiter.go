package pool

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// waiter is a turn that waits for a place: one of the places for turns in a box, or a place for
// its box on the server.
type waiter struct {
	box holdfast.BoxID
	// walls is what wallsOf returns for the claim of a turn.
	walls string
	// granted reports that the waiter has the place it waited for.
	granted bool
	// news receives a value when the waiter must check its position again.
	news chan struct{}
	// told is the position that was last reported to the caller.
	told int
}

func newWaiter(box holdfast.BoxID) *waiter { return &waiter{box: box, news: make(chan struct{}, 1)} }

func (w *waiter) signal() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// wait returns nil when news arrives, when tick fires or when the pool closes. It returns an
// error when ctx ends.
func (w *waiter) wait(ctx context.Context, s *core, tick <-chan time.Time) error {
	select {
	case <-w.news:
	case <-tick:
	case <-s.ctx.Done():
	case <-ctx.Done():
		return gaveUp(ctx)
	}
	return nil
}

// tell calls queued with a position, if the position has changed since the last call.
func (w *waiter) tell(position int, queued func(int)) {
	if position != w.told && queued != nil {
		queued(position)
	}
	w.told = position
}

// line is a queue of waiters, first come first served.
type line []*waiter

// position returns the position of a waiter in the line, from 1; 0 if it is not in the line.
func (l line) position(w *waiter) int { return slices.Index(l, w) + 1 }

// leave takes a waiter out of the line and wakes the others, because their positions may have changed.
func (l *line) leave(w *waiter) {
	if i := slices.Index(*l, w); i >= 0 {
		*l = slices.Delete(*l, i, i+1)
		for _, o := range *l {
			o.signal()
		}
	}
}

func gaveUp(ctx context.Context) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "pool", "gave up waiting for the box: %w", context.Cause(ctx))
}
