package place

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Calm finds out whether the files of a scope can have changed, and keeps the processes of its box
// from changing them for a moment. Work that reads the trees of scopes uses it. Safe for
// concurrent use.
type Calm struct {
	cfg *Config

	mu sync.Mutex
	// at records, for each session, what Untouched found at its last call.
	at map[holdfast.SessionID]*look
}

// look is the result of one call of Untouched: for each box that may change the scope's files, its state in each
// driver. rests is empty if anything ran in one of the boxes. alive is true if anything ran, until Alive has reported
// it.
type look struct {
	boxes []holdfast.BoxID
	rests []sandbox.Rest
	alive bool
}

// Untouched reports whether nothing in the boxes of the session's scope, and in other boxes with its workspace, can
// have changed the scope's files since the last call for the session: no box ran, or the same boxes ran, with no call
// that may change something and no process. It returns false if that is not known: at the first call, and after a box
// was started, stopped, lost or connected to again. It does not notice changes that others make to the files on the
// host.
func (c *Calm) Untouched(ctx context.Context, row journal.Row) bool {
	now := &look{boxes: c.cfg.Scopes.Boxes(row.ID)}
	// Store the new look before asking the boxes, so that the claim of a box during the questions drops the look.
	before := c.begin(row.ID, now)
	rests, ok := c.rests(ctx, now.boxes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.alive = !ok; now.alive {
		return false
	}
	now.rests = rests
	return before != nil && slices.Equal(before.boxes, now.boxes) && slices.Equal(before.rests, rests)
}

// rests returns the states of boxes in which nothing runs; false if something runs in one of them.
func (c *Calm) rests(ctx context.Context, boxes []holdfast.BoxID) (rests []sandbox.Rest, ok bool) {
	for _, d := range c.cfg.Drivers {
		for _, box := range boxes {
			r, ok := d.Pool.Rest(ctx, box)
			if !ok {
				return nil, false
			}
			rests = append(rests, r)
		}
	}
	return rests, true
}

// Still runs fn while no process of the session's box runs, if that is possible: see pool.Pool.Still. frozen also
// says that nothing ran in other boxes with the same workspace; those are not frozen.
func (c *Calm) Still(ctx context.Context, row journal.Row, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (frozen bool, err error) {
	d, err := For(row.Session, c.cfg.Drivers)
	if err != nil {
		return false, err
	}
	own := c.cfg.Scopes.Of(row.ID).Box
	others := slices.DeleteFunc(c.cfg.Scopes.Boxes(row.ID), func(box holdfast.BoxID) bool { return box == own })
	before, rested := c.rests(ctx, others)
	frozen, err = d.Pool.Still(ctx, own, most, ready, fn)
	if frozen && len(others) > 0 {
		after, rest := c.rests(ctx, others)
		frozen = rested && rest && slices.Equal(before, after)
	}
	return frozen, err
}

// Alive reports whether a process may be alive in a box with the session's workspace. If the last call of Untouched
// found something running, the first call of Alive after it returns true without asking the boxes again.
func (c *Calm) Alive(ctx context.Context, row journal.Row) bool {
	if c.foundAlive(row.ID) {
		return true
	}
	_, rest := c.rests(ctx, c.cfg.Scopes.Boxes(row.ID))
	return !rest
}

// foundAlive reports, once, that the last look for a session found something running.
func (c *Calm) foundAlive(id holdfast.SessionID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.at[id]
	if last == nil || !last.alive {
		return false
	}
	last.alive = false
	return true
}

// begin replaces the last look for a session and returns it; nil if there is none, or if something ran at that look.
func (c *Calm) begin(id holdfast.SessionID, now *look) (before *look) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before = c.at[id]; before != nil && len(before.rests) == 0 {
		before = nil
	}
	if c.at == nil {
		c.at = map[holdfast.SessionID]*look{}
	}
	c.at[id] = now
	return before
}

// claimed is called when a box was claimed. It drops what Untouched found at its last calls, unless that came through
// the claimed connection: the claimed boot may have ended again before the next call of Untouched.
func (c *Calm) claimed(box holdfast.BoxID, claimed *sandbox.Box) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, was := range c.at {
		if slices.Contains(was.boxes, box) && !slices.ContainsFunc(was.rests, func(s sandbox.Rest) bool { return s.Of(claimed) }) {
			delete(c.at, id)
		}
	}
}

// forget removes the last look for a session.
func (c *Calm) forget(id holdfast.SessionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.at, id)
}
