// Package pool owns the boxes of one driver: it starts them at their first use, shares them,
// freezes and stops idle ones, evicts one when another needs its place, keeps some ready in
// advance, watches the disk that they fill, and adopts or ends those that a former server left.
//
// Package place claims boxes from it, app and bench make a pool for each driver; the pool does not know
// sessions. Invariant (I-14): limits, retries, idle stop and queueing exist here, once, for every driver.
package pool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Config configures a Pool. Zero durations and counts mean the defaults.
type Config struct {
	Driver sandbox.Driver
	// Token is the fencing token that each hello to a box carries.
	Token uint64
	// MaxBoxes is how many boxes may run at once (default 64). At the limit the pool evicts an idle box: one without a
	// connection, or the one that was idle longest. If all are in use, a turn waits for a place, and any other claim
	// fails as unavailable, with holdfast.ErrFull.
	MaxBoxes int
	// MaxTurns is how many turns may use one box at once (default 3); further turns wait, first
	// come first served. Claims that are not for turns do not count.
	MaxTurns int
	// FreezeAfter is how long a box must be unused before it is frozen (default 1 min), StopAfter
	// before it is stopped (default 15 min). Negative values mean never.
	FreezeAfter, StopAfter time.Duration
	// Prewarm is how many boots of boxd the pool keeps ready in advance, if the driver can (default 0).
	Prewarm int
	// Disk configures how the disk that boxes write to is watched; nil means that it is not watched.
	Disk *Disk
	// OnEvent is called for each event of a box, in order for each box and concurrently for different boxes. Until
	// OnEvent returns, the pool does nothing more to the box than close its gate. OnEvent may read the pool's state but
	// must not Acquire, Freeze, Stop or Remove the same box.
	OnEvent func(Event)
	// Patience is how long operations wait for a box that does not answer at all. Then the pool
	// stops the box, and the next Acquire starts it again.
	Patience sandbox.Patience
	// Accepted serves the connections that the proxy listeners of boxes accept.
	Accepted sandbox.Handler
	// Resting returns the running calls of a box that are idle: agents between their turns. They do not
	// prevent an idle box from being frozen, stopped or evicted. The box's op is held during the call,
	// so Resting must not act on a box. If Resting is nil, no call counts as idle.
	Resting func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID
}

// Event reports what happened to a box. Its type is one of EventBoxStarted, EventBoxStopped,
// EventBoxFrozen, EventBoxLost, EventBoxOOM and EventBoxPids. OnEvent gets EventBoxFrozen and
// EventBoxStopped before the box is frozen or stopped (HZ-10).
type Event struct {
	Type    holdfast.EventType
	Box     holdfast.BoxID
	Started holdfast.BoxStarted
	Ended   holdfast.BoxEnded
}

// Data returns the data of the event that the log stores.
func (ev Event) Data() any {
	if ev.Type == holdfast.EventBoxStarted {
		return ev.Started
	}
	return ev.Ended
}

// Pool owns the boxes of one driver: it starts a box at its first use, shares it among its users, freezes and stops
// idle boxes, evicts one when another needs its place, and adopts or stops those that a former server left. Safe for
// concurrent use.
//
// It has two kinds of locks. The pool's lock (core.mu) guards the fields of the pool's parts, except the disk watcher,
// and of its entries; it is never held during I/O or a callback. A box's lock op is held during the I/O of that one
// box. A goroutine waits for the op of a second box only to evict: its own box has no place then, and it waits only for
// boxes that have one, so there is no cycle.
type Pool struct {
	backend *backend
	core    *core
	places  *places
	roster  *roster
	ready   prewarmed
	disk    *watcher
}

// adoptParallel is how many boxes of a former server the pool adopts at the same time.
const adoptParallel = 32

// New makes a pool. It starts nothing: that is for Start.
func New(cfg Config) *Pool {
	cfg.defaults()
	s := &core{phase: phaseNew}
	disk := newWatcher(cfg.Disk)
	b := newBackend(cfg, disk.grows)
	disk.holder = b.holder
	if b.freezer == nil {
		cfg.FreezeAfter = -1
	}
	places := &places{core: s, most: cfg.MaxBoxes, taken: map[holdfast.BoxID]bool{}}
	return &Pool{
		backend: b, core: s, places: places, disk: disk, ready: newPrewarmed(s, cfg.Driver, cfg.Prewarm),
		roster: &roster{
			core: s, backend: b, places: places, maxTurns: cfg.MaxTurns, boxes: map[holdfast.BoxID]*entry{},
			janitor: janitor{freezeAfter: cfg.FreezeAfter, stopAfter: cfg.StopAfter, kick: make(chan struct{}, 1)},
		},
	}
}

func (c *Config) defaults() {
	if c.MaxBoxes == 0 {
		c.MaxBoxes = 64
	}
	if c.MaxTurns == 0 {
		c.MaxTurns = 3
	}
	if c.FreezeAfter == 0 {
		c.FreezeAfter = time.Minute
	}
	if c.StopAfter == 0 {
		c.StopAfter = 15 * time.Minute
	}
}

// Live returns the connection to the box with that id, or nil if the box is not connected. It starts nothing.
func (p *Pool) Live(id holdfast.BoxID) *sandbox.Box {
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	if e := p.roster.boxes[id]; e != nil && e.box.connected() {
		return e.box.conn
	}
	return nil
}

// Freeze freezes an unused box now. It returns busy if the box is claimed or a call runs in it, unavailable
// if the driver cannot freeze, not_found if the box is not connected.
func (p *Pool) Freeze(ctx context.Context, id holdfast.BoxID) error {
	return p.roster.with(ctx, id, func(e *entry) error { return e.freeze(ctx) })
}

// Stop ends a box, claimed or not: SIGTERM, then SIGKILL after grace. The event lists the
// background processes that end with it.
func (p *Pool) Stop(ctx context.Context, id holdfast.BoxID, reason string, grace time.Duration) error {
	return p.roster.with(ctx, id, func(e *entry) error { return e.box.stop(ctx, holdfast.BoxEnded{Reason: reason}, grace) })
}

// Remove stops a box and removes the driver's records of it.
func (p *Pool) Remove(ctx context.Context, id holdfast.BoxID) error {
	return p.roster.with(ctx, id, func(e *entry) error { return e.box.remove(ctx) })
}

// Join gives a session its place in a running shared box; the pool sets the token of m. It may be repeated. It fails
// with unavailable if the driver has no shared boxes.
func (p *Pool) Join(ctx context.Context, box holdfast.BoxID, m sandbox.Member) error {
	return p.backend.join(ctx, box, m)
}

// Leave ends the place of a session in a shared box, and all that runs in it: SIGTERM, then SIGKILL after grace. A
// frozen box is thawed. Leave does nothing if the box is not connected.
func (p *Pool) Leave(ctx context.Context, box holdfast.BoxID, session holdfast.SessionID, grace time.Duration) error {
	return p.roster.with(ctx, box, func(e *entry) error {
		conn := p.Live(box)
		if conn == nil {
			return nil
		}
		e.box.mu.Lock()
		frozen := e.box.frozen
		e.box.mu.Unlock()
		if frozen {
			if err := e.box.thaw(ctx, conn); err != nil {
				return err
			}
		}
		return conn.Of(session).Leave(ctx, wire.LeaveRequest{GraceMS: grace.Milliseconds(), Reason: "the session left the box"})
	})
}

// Reserve assigns a ready boot to a box that has never run, as sandbox.Prewarmer does, and
// returns the changed spec. If no boot is ready, it returns spec unchanged and false.
func (p *Pool) Reserve(spec sandbox.Spec) (sandbox.Spec, bool) { return p.ready.reserve(spec) }

// Close ends the pool's own goroutines and closes its connections. If stop is true, it also stops every box;
// otherwise the boxes keep running, to be adopted by the next server. It may be called more than once.
func (p *Pool) Close(ctx context.Context, stop bool) error {
	if !p.core.end() {
		return nil
	}
	p.core.mu.Lock()
	all := slices.Collect(maps.Values(p.roster.boxes))
	p.core.mu.Unlock()
	errs := make([]error, len(all)+1)
	var wg sync.WaitGroup
	for i, e := range all {
		wg.Go(func() { errs[i] = e.box.close(ctx, stop) })
	}
	wg.Wait()
	errs[len(all)] = p.ready.end(ctx)
	return joinErrors(errs)
}

// joinErrors joins errors into one that has the kind and the hint of the first.
func joinErrors(errs []error) error {
	all := errors.Join(errs...)
	for _, err := range errs {
		if err != nil {
			return holdfast.Errorf(holdfast.KindOf(err), "pool", "%w", all).WithHint("%s", holdfast.HintOf(err))
		}
	}
	return nil
}
