package pool

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// entry is a box with its users. The pool's lock guards all fields except box.op.
type entry struct {
	box   life
	turns turns
	// holds counts claims, users Acquire calls that wait for or start the box, refs other operations on it.
	holds, users, refs int
	// failures counts the failed starts of the box; failure is the latest error.
	failures int
	failure  error

	// acting is true while a job of the janitor is carried out on the box. dirty is true if the box was used since its
	// counters were last read, at checkedAt.
	acting, dirty bool
	checkedAt     time.Time
	// watched is the connection whose end a goroutine waits for.
	watched *sandbox.Box
}

// unused reports whether the box has no claim and no Acquire waits for it; the pool's lock is held.
func (e *entry) unused() bool { return e.holds == 0 && e.turns.taken == 0 && e.users == 0 }

// forgettable reports whether the pool can drop the entry of the box; the pool's lock is held.
func (e *entry) forgettable() bool {
	return !e.box.running && e.unused() && e.refs == 0 && len(e.turns.queue) == 0
}

// reserve prevents claims of an unused box until unreserve. It returns the box's connection, nil
// if it has none, and false if the box is in use. The box's lock op is held.
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

// freeze freezes the box. It returns not_found if the box is not connected, busy if it is in use. Its lock op is held.
func (e *entry) freeze(ctx context.Context) error {
	const op = "pool.freeze"
	e.box.mu.Lock()
	connected, frozen := e.box.connected(), e.box.frozen
	e.box.mu.Unlock()
	if !connected {
		return holdfast.Errorf(holdfast.KindNotFound, op, "box %s is not running", holdfast.Quote(string(e.box.id)))
	}
	if frozen {
		return nil
	}
	busy := holdfast.Errorf(holdfast.KindBusy, op, "box %s is in use", holdfast.Quote(string(e.box.id))).
		WithHint("retry when the calls in the box have ended")
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

// stopIdle stops the box, or returns busy if the box is in use or a call runs in it; the box's lock op is held.
func (e *entry) stopIdle(ctx context.Context, reason string) error {
	conn, ok := e.reserve()
	if ok {
		defer e.unreserve()
	}
	if !ok || e.box.working(ctx, conn) {
		return holdfast.Errorf(holdfast.KindBusy, "pool.stop", "box %s is in use", holdfast.Quote(string(e.box.id)))
	}
	return e.box.stop(ctx, holdfast.BoxEnded{Reason: reason}, StopGrace)
}

// act does a job for the box. It locks the box first, and does nothing if the job is no longer due then.
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
		// The box is in use, or cannot be stopped now: its idle time begins again.
		e.box.usedAt = time.Now()
	}
}
