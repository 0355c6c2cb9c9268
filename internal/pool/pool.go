// Package pool owns the boxes of one driver: it starts them when they are first needed, shares
// them, freezes and stops idle ones, evicts one when another needs its place, keeps some ready,
// watches the disk that they fill, and takes over or ends those that a former server left.
//
// place claims boxes from it, app and bench make one for each driver; it knows no session.
// Invariant (I-14): limits, retries, idle stop and queueing exist here, once, for every driver.
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
)

// Config configures a Pool. Zero durations and counts take the defaults.
type Config struct {
	Driver sandbox.Driver
	// Token is the fencing token of every hello.
	Token uint64
	// MaxBoxes is how many boxes may run at once (default 64). At the limit the box that
	// was idle longest is evicted, never one in use. When all are in use, a turn waits for a
	// place, and any other claim fails: unavailable, with holdfast.ErrFull.
	MaxBoxes int
	// MaxTurns is how many turns may use one box at once (default 3); more turns wait,
	// first come first served. Claims that are no turns do not count.
	MaxTurns int
	// FreezeAfter freezes a box that nothing used for that long (default 1 min;
	// negative is never). StopAfter stops it (default 15 min; negative is never).
	FreezeAfter, StopAfter time.Duration
	// Prewarm is how many boots of boxd are kept ready, if the driver can (default 0).
	Prewarm int
	// Disk says how the disk that boxes write to is watched; nil does not watch it.
	Disk *Disk
	// OnEvent is called for each event of a box, in order for each box and concurrently for
	// different ones. The pool does nothing more to the box until it returns: it may look at
	// the pool but must not Acquire, Freeze, Stop or Remove the same box.
	OnEvent func(Event)
	// Patience is how long operations wait for a box that gives no sign of life. Then
	// the box is stopped, and the next Acquire starts another one.
	Patience sandbox.Patience
	// Accepted serves the connections that the proxy listeners of boxes accept.
	Accepted sandbox.Handler
	// Resting returns the calls of a box that run and do nothing: agents between their
	// turns. They do not keep an idle box from being frozen, stopped or evicted. The box's
	// op is held during the call: Resting must not act on a box. Nil is no calls.
	Resting func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID
}

// Event is something that happened to a box. Its type is one of EventBoxStarted,
// EventBoxStopped, EventBoxFrozen, EventBoxLost, EventBoxOOM and EventBoxPids. OnEvent gets
// EventBoxFrozen and EventBoxStopped before the box is frozen or stopped (HZ-10).
type Event struct {
	Type    holdfast.EventType
	Box     holdfast.BoxID
	Started holdfast.BoxStarted
	Ended   holdfast.BoxEnded
}

// Data returns the data that the log keeps of the event.
func (ev Event) Data() any {
	if ev.Type == holdfast.EventBoxStarted {
		return ev.Started
	}
	return ev.Ended
}

// Pool owns the boxes of one driver: it starts a box at its first use, shares it among those
// who use it, freezes and stops idle boxes, evicts one when another needs its place, and adopts
// or stops those that a former server left. Safe for concurrent use.
//
// Two kinds of lock: the pool's lock (core.mu) guards all fields of the pool's parts and of its
// entries and is never held over I/O or a callback; a box's op is held over the I/O of that
// one box. Whoever waits for a second op does so as evictor: it has no place and waits only
// for boxes that have one, so there is no cycle.
type Pool struct {
	backend *backend
	core    *core
	places  *places
	roster  *roster
	ready   prewarmed
	disk    *watcher
}

// adoptParallel is how many boxes of a former server are adopted at once.
const adoptParallel = 32

// New makes a pool. Nothing runs until Start.
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

// Live returns the connected box of that id, or nil. It starts nothing.
func (p *Pool) Live(id holdfast.BoxID) *sandbox.Box {
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	if e := p.roster.boxes[id]; e != nil && e.box.connected() {
		return e.box.conn
	}
	return nil
}

// Freeze freezes an unused box now; busy when it is held, unavailable when the
// driver cannot, not_found when no such box is connected.
func (p *Pool) Freeze(ctx context.Context, id holdfast.BoxID) error {
	return p.roster.with(ctx, id, func(e *entry) error { return e.freeze(ctx) })
}

// Stop ends a box, held or not: SIGTERM, then SIGKILL after grace. Background
// processes that end with it are named in the event.
func (p *Pool) Stop(ctx context.Context, id holdfast.BoxID, reason string, grace time.Duration) error {
	return p.roster.with(ctx, id, func(e *entry) error { return e.box.stop(ctx, holdfast.BoxEnded{Reason: reason}, grace) })
}

// Remove stops a box and removes the driver's records of it.
func (p *Pool) Remove(ctx context.Context, id holdfast.BoxID) error {
	return p.roster.with(ctx, id, func(e *entry) error { return e.box.remove(ctx) })
}

// Reserve gives a box that never ran a ready boot, as sandbox.Prewarmer does. If there is none,
// it returns spec unchanged.
func (p *Pool) Reserve(spec sandbox.Spec) (sandbox.Spec, bool) { return p.ready.reserve(spec) }

// Close ends the pool's own goroutines and closes its connections. With stop true it
// also stops every box; otherwise they stay, to be adopted. Idempotent.
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

// joinErrors joins errors into one with the kind and hint of the first.
func joinErrors(errs []error) error {
	all := errors.Join(errs...)
	for _, err := range errs {
		if err != nil {
			return holdfast.Errorf(holdfast.KindOf(err), "pool", "%w", all).WithHint("%s", holdfast.HintOf(err))
		}
	}
	return nil
}
