package pool

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox"
)

// roster is the list of the boxes that a pool has loaded: those that run, and those in use or
// being acted on. A goroutine acts on a box through with, or it takes the box's op itself and
// calls done afterwards.
type roster struct {
	core     *core
	backend  *backend
	places   *places
	maxTurns int

	// The pool's lock guards janitor and boxes.
	janitor janitor
	boxes   map[holdfast.BoxID]*entry
}

// entry returns the entry of a box, and makes one if the box has none; the pool's lock is held.
func (r *roster) entry(id holdfast.BoxID) *entry {
	e := r.boxes[id]
	if e == nil {
		e = &entry{box: newLife(id, r.backend, &r.core.mu), turns: turns{core: r.core, most: r.maxTurns}}
		r.boxes[id] = e
	}
	return e
}

// with runs fn on the entry of a box, with the box's op held.
func (r *roster) with(ctx context.Context, id holdfast.BoxID, fn func(*entry) error) error {
	r.core.mu.Lock()
	if err := r.core.open(); err != nil {
		r.core.mu.Unlock()
		return err
	}
	e := r.entry(id)
	e.refs++
	r.core.mu.Unlock()
	defer func() {
		r.core.mu.Lock()
		defer r.core.mu.Unlock()
		e.refs--
		r.done(e)
	}()
	if err := e.box.lock(ctx); err != nil {
		return err
	}
	defer e.box.unlock()
	return fn(e)
}

// done must be called after each use of a box or operation on it. It frees the place of a box that neither runs nor is
// in use and forgets its entry, starts to watch a new connection, and notifies the line and the janitor. The pool's
// lock is held.
func (r *roster) done(e *entry) {
	if e.unused() {
		r.places.wake()
	}
	if e.forgettable() {
		if r.boxes[e.box.id] == e {
			r.places.free(e.box.id)
			delete(r.boxes, e.box.id)
		}
		return
	}
	if conn := e.box.conn; conn != nil && conn != e.watched {
		e.watched = conn
		r.core.spawn(func() { r.watch(e, conn) })
	}
	r.janitor.schedule(e)
}

// victim returns the box to evict next: one without a connection, or else the one that has been
// idle longest; nil if no box can be evicted. The pool's lock is held.
func (r *roster) victim(tried map[*entry]bool) *entry {
	var best *entry
	for _, v := range r.boxes {
		if !r.places.has(v.box.id) || !v.unused() || tried[v] {
			continue
		}
		if best == nil || (v.box.conn == nil) != (best.box.conn == nil) && v.box.conn == nil ||
			(v.box.conn == nil) == (best.box.conn == nil) && v.box.usedAt.Before(best.box.usedAt) {
			best = v
		}
	}
	return best
}

// running implements runners.
func (r *roster) running() map[holdfast.BoxID]runner {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	out := map[holdfast.BoxID]runner{}
	for id, e := range r.boxes {
		if e.box.running {
			out[id] = runner{e.box.boot, e.box.frozen}
		}
	}
	return out
}

// end implements runners.
func (r *roster) end(ctx context.Context, id holdfast.BoxID, ended holdfast.BoxEnded) error {
	return r.with(ctx, id, func(e *entry) error { return e.box.stop(ctx, ended, 0) })
}

// watch tries renewTries times to make a broken connection again, with renewPause after each failure.
const (
	renewTries = 4
	renewPause = 50 * time.Millisecond
)

// watch waits for the end of a connection and makes a new one at once, so that the loss of a box is reported even if
// the box is not used. If reconnecting fails, the next Acquire tries again.
func (r *roster) watch(e *entry, conn *sandbox.Box) {
	select {
	case <-conn.Done():
	case <-r.core.ctx.Done():
		return
	}
	for range renewTries {
		err := r.renew(e, conn)
		if err == nil || holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindConflict) {
			return
		}
		// A dying boxd may still have been listening: wait and try again.
		if clock.Pause(r.core.ctx, renewPause) != nil {
			return
		}
	}
}

// renew connects again after the end of conn, unless another goroutine did already.
func (r *roster) renew(e *entry, conn *sandbox.Box) error {
	ctx, cancel := context.WithTimeout(r.core.ctx, actTimeout)
	defer cancel()
	return r.with(ctx, e.box.id, func(now *entry) error {
		r.core.mu.Lock()
		ours := now == e && e.box.running && (e.box.conn == conn || e.box.conn == nil)
		r.core.mu.Unlock()
		if !ours {
			return nil
		}
		return e.box.reconnect(ctx, 1)
	})
}
