package pool

import (
	"context"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// List returns the boxes that the driver lists, with what the pool has recorded of each, and
// those that are being started.
func (p *Pool) List(ctx context.Context) ([]holdfast.Container, error) {
	infos, err := p.backend.driver.List(ctx)
	if err != nil {
		return nil, err
	}
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	out := make([]holdfast.Container, 0, len(infos))
	listed := map[holdfast.BoxID]bool{}
	for _, info := range infos {
		listed[info.Box] = true
		out = append(out, container(p.Driver(), info, p.roster.boxes[info.Box]))
	}
	for id, e := range p.roster.boxes {
		if !listed[id] && p.places.has(id) && e.users > 0 {
			out = append(out, container(p.Driver(), sandbox.Info{Box: id}, e))
		}
	}
	return out, nil
}

// States returns the number of boxes in each state, as the pool has recorded them, without asking the driver.
func (p *Pool) States() map[holdfast.BoxState]int {
	out := map[holdfast.BoxState]int{}
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	for id, e := range p.roster.boxes {
		out[container(p.Driver(), sandbox.Info{Box: id, Running: e.box.running, Frozen: e.box.frozen}, e).State]++
	}
	return out
}

// container describes a box by the records of the driver and of the pool; e is nil if the pool
// has no entry for it. The pool's lock is held.
func container(driver string, info sandbox.Info, e *entry) holdfast.Container {
	c := holdfast.Container{
		ID: info.Box, Driver: driver, State: holdfast.BoxStopped,
		PID: info.PID, Boot: info.Boot, StartedAt: info.StartedAt,
	}
	if s, ok := strings.CutPrefix(string(info.Box), string(holdfast.SessionID("").Box())); ok {
		c.Session = holdfast.SessionID(s)
	}
	if info.Running {
		c.State = holdfast.BoxIdle
		if info.Frozen {
			c.State = holdfast.BoxFrozen
		}
	}
	if e == nil {
		return c
	}
	c.LastUsed, c.Calls, c.Queued = e.box.usedAt, e.holds, len(e.turns.queue)
	if e.box.boot != "" {
		c.Boot = e.box.boot
	}
	switch {
	case e.holds > 0 && e.box.running:
		c.State = holdfast.BoxRunning
	case e.box.frozen && info.Running:
		c.State = holdfast.BoxFrozen
	case e.users > 0 && e.box.conn == nil:
		c.State = holdfast.BoxStarting
	}
	return c
}

// Full returns an error if no box can start now, because all places are in use or a turn waits
// for the next one. It returns nil if the box has its place, or if one is free or can be taken
// from an idle box. It starts nothing and calls neither the driver nor boxd.
func (p *Pool) Full(id holdfast.BoxID) error {
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	if p.places.has(id) || p.places.vacant() || len(p.places.line) == 0 && p.roster.victim(nil) != nil {
		return nil
	}
	return p.places.full()
}

// RemoveStopped removes the driver's records of a box that does not run, and reports whether it
// did. It leaves a box that runs or is being started as it is.
func (p *Pool) RemoveStopped(ctx context.Context, id holdfast.BoxID) (removed bool, err error) {
	err = p.roster.with(ctx, id, func(e *entry) error {
		p.core.mu.Lock()
		running, inUse := e.box.running, !e.unused()
		p.core.mu.Unlock()
		if inUse || running {
			return nil
		}
		// op prevents this pool from starting the box, but another pool of the same driver may
		// have started it since it was listed.
		infos, err := p.backend.driver.List(ctx)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Box == id && !info.Running {
				removed = true
				return e.box.remove(ctx)
			}
		}
		return nil
	})
	return removed && err == nil, err
}

// RemoveOrphan removes a box that no session may use, running or not, and reports whether it did. While the box cannot
// be claimed it calls orphan, and removes the box if that returns true. A box that is in use or starting stays.
func (p *Pool) RemoveOrphan(ctx context.Context, id holdfast.BoxID, orphan func() bool) (removed bool, err error) {
	err = p.roster.with(ctx, id, func(e *entry) error {
		if _, free := e.reserve(); !free {
			return nil
		}
		defer e.unreserve()
		if !orphan() {
			return nil
		}
		removed = true
		return e.box.remove(ctx)
	})
	return removed && err == nil, err
}

// Leftovers returns what the driver still stores for boxes and servers that no longer exist. If
// remove is true, it removes them too.
func (p *Pool) Leftovers(ctx context.Context, remove bool) ([]sandbox.Leftover, error) {
	return p.backend.leftovers(ctx, remove)
}

// Driver returns the name of the pool's driver.
func (p *Pool) Driver() string { return p.backend.name() }
