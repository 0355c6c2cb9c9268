package pool

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// entry is a box and those who use it. All but box.op is guarded by the pool's lock.
type entry struct {
	box   life
	turns turns
	// holds are claims, users slow Acquires under way, refs other operations on the box.
	holds, users, refs int
	// failures counts failed starts, failure is the last one.
	failures int
	failure  error

	// acting: the janitor does something to the box. dirty: it was used since the last look at
	// its counters, at checkedAt.
	acting, dirty bool
	checkedAt     time.Time
	// watched is the connection whose end a goroutine waits for.
	watched *sandbox.Box
}

// unused reports whether nobody uses the box or is about to; the lock is held.
func (e *entry) unused() bool { return e.holds == 0 && e.turns.taken == 0 && e.users == 0 }

// forgettable reports whether the pool needs to know nothing of the box; the lock is held.
func (e *entry) forgettable() bool {
	return !e.box.running && e.unused() && e.refs == 0 && len(e.turns.queue) == 0
}

// reserve keeps an unused box from being claimed until unreserve, and returns its connection,
// nil for none. It returns false for a box that is used. op is held.
func (e *entry) reserve() (conn *sandbox.Box, ok bool) {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	if !e.unused() {
		return nil, false
	}
	e.box.moving = true
	if e.box.connected() {
		conn = e.box.conn
	}
	return conn, true
}

func (e *entry) unreserve() {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	e.box.moving = false
}

// freeze freezes an unused box in which nothing runs; op is held.
func (e *entry) freeze(ctx context.Context) error {
	const op = "pool.freeze"
	e.box.mu.Lock()
	connected, frozen := e.box.connected(), e.box.frozen
	e.box.mu.Unlock()
	if !connected {
		return holdfast.Errorf(holdfast.KindNotFound, op, "box %s does not run", holdfast.Quote(string(e.box.id)))
	}
	if frozen {
		return nil
	}
	busy := holdfast.Errorf(holdfast.KindBusy, op, "box %s is in use", holdfast.Quote(string(e.box.id))).
		WithHint("retry when its calls have ended")
	conn, ok := e.reserve()
	if !ok {
		return busy
	}
	defer e.unreserve()
	if conn == nil || e.box.working(ctx, conn) {
		return busy
	}
	return e.box.freeze(ctx, conn)
}

// stopIdle stops an unused box in which nothing runs; any other is busy. op is held.
func (e *entry) stopIdle(ctx context.Context, reason string) error {
	conn, ok := e.reserve()
	if ok {
		defer e.unreserve()
	}
	if !ok || e.box.working(ctx, conn) {
		return holdfast.Errorf(holdfast.KindBusy, "pool.stop", "box %s is in use", holdfast.Quote(string(e.box.id)))
	}
	return e.box.stop(ctx, holdfast.BoxEnded{Reason: reason}, idleGrace)
}

// act does a job that is due for the box, unless it is not due any more once op is taken.
func (e *entry) act(ctx context.Context, j *janitor, what job) {
	if e.box.lock(ctx) != nil {
		return
	}
	defer e.box.unlock()
	e.box.mu.Lock()
	due, conn := j.still(e, what), e.box.conn
	if due && what == jobCounters {
		e.dirty, e.checkedAt = false, time.Now()
	}
	e.box.mu.Unlock()
	if !due {
		return
	}
	var err error
	switch what {
	case jobCounters:
		e.box.checkCounters(ctx, conn)
	case jobFreeze:
		err = e.freeze(ctx)
	case jobStop:
		err = e.stopIdle(ctx, "idle")
	}
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	switch {
	case err == nil:
	case what == jobFreeze && !holdfast.IsKind(err, holdfast.KindBusy):
		e.box.noFreeze = true
	default:
		// In use, or it cannot be stopped now: the idle time begins again.
		e.box.usedAt = time.Now()
	}
}
