package pool

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// waiter is a turn that waits: for one of the turns' places in a box, or for a box's place on
// the server.
type waiter struct {
	box holdfast.BoxID
	// granted: it has the place that it waited for.
	granted bool
	// news has something when the waiter is to look again.
	news chan struct{}
	// told is the position that its caller knows.
	told int
}

func newWaiter(box holdfast.BoxID) *waiter { return &waiter{box: box, news: make(chan struct{}, 1)} }

func (w *waiter) signal() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// wait returns when there is news, when tick fires, or with an error when ctx ends; the end
// of the pool counts as news.
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

// tell calls queued with a position that the caller does not know yet.
func (w *waiter) tell(position int, queued func(int)) {
	if position != w.told && queued != nil {
		queued(position)
	}
	w.told = position
}

// line is a row of waiters, first come first served.
type line []*waiter

// position is the place of a waiter in the line, from 1; 0 if it is not in it.
func (l line) position(w *waiter) int { return slices.Index(l, w) + 1 }

// leave takes a waiter out of the line and wakes the others, whose positions may have changed.
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
