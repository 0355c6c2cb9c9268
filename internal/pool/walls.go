package pool

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox"
)

// WallsChanged is the reason for stopping a box whose walls are older than its rules.
const WallsChanged = "the path rules changed: it starts again with their walls"

// wallsBroken is the reason for stopping a box that lacks a wall.
const wallsBroken = "a rename on the host took a wall away: it starts again with all of them"

// bringWalled makes the box ready with the walls of spec. stale: it is in use with
// other walls, or some are missing. op is held.
func (p *Pool) bringWalled(ctx context.Context, e *entry, spec sandbox.Spec) (stale bool, err error) {
	p.mu.Lock()
	ready := e.ready()
	p.mu.Unlock()
	if !ready {
		if err := p.bring(ctx, e, spec); err != nil {
			return false, err
		}
	}
	ended, stale, err := p.rebuild(ctx, e, spec.Walls.Hash())
	if ended && err == nil {
		err = p.bring(ctx, e, spec)
	}
	return stale, err
}

// rebuild ends a running box that has other walls than hash, or has lost one. A box
// that is claimed or runs a call goes on: it is stale.
func (p *Pool) rebuild(ctx context.Context, e *entry, hash string) (ended, stale bool, err error) {
	p.mu.Lock()
	same, ok, b, held, moving := e.walls == hash, p.walled(e, hash), e.box, e.holds > 0, e.moving
	if !ok && !held {
		e.moving = true // prevents claims meanwhile
	}
	p.mu.Unlock()
	if ok || held {
		return false, !ok, nil
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		e.moving = moving
	}()
	if p.working(ctx, e.id, b) {
		return false, true, nil
	}
	reason := WallsChanged
	if same {
		reason = wallsBroken
	}
	return true, false, p.stop(ctx, e, reason, idleGrace)
}
