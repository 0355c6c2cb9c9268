package pool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Hold is a claim on a running, connected box. While a box has claims, the pool does not freeze or evict it, and stops
// it only if a caller says so, if it takes too much of the disk, or if it does not answer. If the connection breaks,
// the claim stays valid, but Box stays broken: release the claim and acquire again for a new connection.
type Hold struct {
	Box *sandbox.Box

	roster *roster
	e      *entry
	turn   bool
	left   drift
	once   sync.Once
}

// Stale reports whether the box has other walls (mounts that enforce path rules) than the claim
// asked for: it was in use and could not be restarted. Its processes run without the new walls.
func (h *Hold) Stale() bool { return h.left.walls }

// Drifted reports whether the box has other settings, such as limits, than the claim asked for, and nobody else had
// claimed it: it could not be restarted because a process runs in it.
func (h *Hold) Drifted() bool { return h.left.spec }

// WallsHold reports whether all walls that the box was started with are still in force.
func (h *Hold) WallsHold() bool { return h.e.box.backend.wallsHold(h.e.box.id) }

// Release ends the claim. It may be called more than once.
func (h *Hold) Release() {
	h.once.Do(func() {
		h.roster.core.mu.Lock()
		defer h.roster.core.mu.Unlock()
		h.e.holds--
		h.e.dirty = true
		h.e.box.usedAt = time.Now()
		h.e.turns.end(h.turn)
		h.roster.done(h.e)
	})
}

// claim registers a claim on a box. The pool's lock (core.mu) is held.
func (r *roster) claim(e *entry, turn bool) *Hold {
	e.holds++
	e.box.claimed = true
	return &Hold{Box: e.box.conn, roster: r, e: e, turn: turn}
}

// Acquire starts the box, thaws it or connects to it, as needed, and claims it. A claim of a turn waits while MaxTurns
// turns use the box, while the maximum of boxes is running and none can be evicted, or while claims with other walls
// use a shared box; queued receives its position (from 1) each time that changes. Any other claim fails with busy while
// claims with other walls use a shared box. If the connection of a fresh box breaks before anything ran, Acquire starts
// it once more. It restarts a box that has other walls than spec or has lost a wall; if the box is claimed or a call
// runs in it, the box goes on and the claim is stale. It restarts a box with other settings than spec only if nobody
// else has claimed it and no process runs in it.
func (p *Pool) Acquire(ctx context.Context, spec sandbox.Spec, turn bool, queued func(position int)) (*Hold, error) {
	want := shapeOf(spec)
	p.core.mu.Lock()
	if err := p.core.open(); err != nil {
		p.core.mu.Unlock()
		return nil, err
	}
	e := p.roster.entry(spec.Box)
	if e.fits(want) && e.turns.take(wallsOf(spec, want), turn) {
		h := p.roster.claim(e, turn)
		p.core.mu.Unlock()
		return h, nil
	}
	e.users++
	seen := e.failures
	p.core.mu.Unlock()

	h, err := p.acquireSlow(ctx, e, spec, want, turn, queued, seen)

	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	e.users--
	p.roster.done(e)
	return h, err
}

func (p *Pool) acquireSlow(ctx context.Context, e *entry, spec sandbox.Spec, want shape, turn bool, queued func(int), seen int) (h *Hold, err error) {
	if err := e.turns.enter(ctx, spec.Box, wallsOf(spec, want), turn, queued); err != nil {
		return nil, err
	}
	defer func() {
		if h == nil {
			p.core.mu.Lock()
			e.turns.end(turn)
			p.core.mu.Unlock()
		}
	}()
	var place *waiter
	defer func() { p.places.leave(place) }()
	for {
		h, err = p.acquireNow(ctx, e, spec, want, turn, seen)
		if !turn || !errors.Is(err, holdfast.ErrFull) {
			return h, err
		}
		if place, err = p.places.wait(ctx, spec.Box, place, queued); err != nil {
			return nil, err
		}
	}
}

func (p *Pool) acquireNow(ctx context.Context, e *entry, spec sandbox.Spec, want shape, turn bool, seen int) (h *Hold, err error) {
	if err := e.box.lock(ctx); err != nil {
		return nil, err
	}
	defer e.box.unlock()

	p.core.mu.Lock()
	err = p.core.open()
	if err == nil && e.failures > seen {
		// Another Acquire failed while this one waited for the box's lock op: return the same error.
		err = e.failure
	}
	if err == nil && e.fits(want) {
		h = p.roster.claim(e, turn)
	}
	p.core.mu.Unlock()
	if h != nil || err != nil {
		return h, err
	}

	left, err := p.bringFit(ctx, e, spec, want)

	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, holdfast.ErrFull) {
			e.failures++
			e.failure = err
		}
		return nil, err
	}
	h = p.roster.claim(e, turn)
	h.left = left
	return h, nil
}

// bringFit makes the box ready with the walls and settings of spec. left says in which of the two a box that could not
// be restarted still differs from spec. The box's lock op is held.
func (p *Pool) bringFit(ctx context.Context, e *entry, spec sandbox.Spec, want shape) (left drift, err error) {
	p.core.mu.Lock()
	ready := e.box.ready()
	p.core.mu.Unlock()
	if !ready {
		if err := p.bring(ctx, e, spec); err != nil {
			return left, err
		}
	}
	ended, left, err := e.rebuild(ctx, want)
	if ended && err == nil {
		err = p.bring(ctx, e, spec)
	}
	return left, err
}

// bring makes the box ready: it wakes a running box, or starts the box if the disk and the
// maximum of boxes allow it. The box's lock op is held.
func (p *Pool) bring(ctx context.Context, e *entry, spec sandbox.Spec) error {
	if ready, err := e.box.wake(ctx); ready || err != nil {
		return err
	}
	if err := p.disk.refuses(spec.Box); err != nil {
		return err
	}
	if err := p.admit(ctx, e); err != nil {
		return err
	}
	if err := e.box.start(ctx, spec); err != nil {
		return err
	}
	p.ready.refill()
	return nil
}

// admit gives the box a place among the running boxes, and evicts an idle box if none is free. The box's lock op is
// held. evict locks a second box: no deadlock, as this box has no place, and evict locks only boxes with a place.
func (p *Pool) admit(ctx context.Context, e *entry) error {
	tried := map[*entry]bool{}
	for {
		p.core.mu.Lock()
		if p.places.take(e.box.id) {
			p.core.mu.Unlock()
			return nil
		}
		v := p.roster.victim(tried)
		if v == nil || !p.places.mayHave(e.box.id) {
			p.core.mu.Unlock()
			return p.places.full()
		}
		tried[v] = true
		v.refs++
		p.core.mu.Unlock()
		err := p.evict(ctx, v, e.box.id)
		p.core.mu.Lock()
		v.refs--
		p.roster.done(v)
		p.core.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// evict stops the box v, if nobody uses v, and gives the place of v to the box with the id to. It returns an error only
// when ctx ends; after any other failure the caller tries the next victim.
func (p *Pool) evict(ctx context.Context, v *entry, to holdfast.BoxID) error {
	if err := v.box.lock(ctx); err != nil {
		return err
	}
	defer v.box.unlock()
	if err := v.stopIdle(ctx, "evicted: another box needed its place"); err != nil {
		if ctx.Err() != nil {
			return gaveUp(ctx)
		}
		return nil
	}
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	if p.places.has(v.box.id) && !v.box.running {
		// Pass the place on under the same lock, so that no third box takes it.
		p.places.pass(v.box.id, to)
	}
	return nil
}
