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
	// MaxBoxes is how many boxes may run at once (default 64). At the limit an
	// idle box is evicted, idle longest first, never a running one. When all run, a
	// turn waits for a place and everything else is unavailable with
	// holdfast.ErrFull.
	MaxBoxes int
	// MaxTurns is how many turns may use one box at once (default 3); more wait,
	// first come first served. Calls of exec, files and terminal are not counted.
	MaxTurns int
	// FreezeAfter freezes a box that nothing used for that long (default 1 min;
	// negative is never). StopAfter stops it (default 15 min; negative is never).
	FreezeAfter, StopAfter time.Duration
	// Prewarm keeps that many boots of boxd ready where the driver can (default 0).
	Prewarm int
	// Disk watches the disk that boxes write to; nil is not at all.
	Disk *Disk
	// OnEvent is told what happens to a box, outside all locks, in order per box.
	// What happens to the box waits for its return: it may look at the pool but
	// must not Acquire, Freeze, Stop or Remove the same box. Events of different
	// boxes come concurrently.
	OnEvent func(Event)
	// Patience is how long operations wait for a box that gives no sign of life. Then
	// it is stopped, and the next Acquire starts another one.
	Patience sandbox.Patience
	// Accepted serves proxy connections.
	Accepted sandbox.Handler
	// Resting names calls of a box that run and do nothing: agents between their
	// turns. They do not keep an idle box from being frozen, stopped or evicted. It may
	// be called under locks of a box: it must not wait for one. Nil is none.
	Resting func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID
}

// Event is something that happened to a box: EventBoxStarted, EventBoxStopped,
// EventBoxFrozen, EventBoxLost, EventBoxOOM, EventBoxPids. Frozen and stopped are told
// before the act (HZ-10).
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

// Pool owns the boxes of one server: it starts them lazily, shares them,
// freezes and stops idle ones, evicts at the limit, adopts or stops what a
// former server left. Safe for concurrent use.
//
// Two kinds of lock: mu guards all fields of the pool and of its entries and is
// never held over I/O or a callback; an entry's op is held over the I/O of that
// one box. Whoever waits for a second op does so as evictor: it has no slot and
// waits only for entries that have one, so there is no cycle.
type Pool struct {
	cfg     Config
	freezer sandbox.Freezer
	warmer  sandbox.Prewarmer
	holder  sandbox.Holder
	guard   sandbox.Guard

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	kick   chan struct{}
	grown  chan struct{}

	mu    sync.Mutex
	phase poolPhase
	boxes map[holdfast.BoxID]*entry
	// crowded are boxes that were stopped for their number of files.
	crowded map[holdfast.BoxID]crowded
	// used counts the entries that have a slot; line are the turns that wait for one.
	used int
	line []*waiter
	// wake is when the janitor looks next; zero while it looks.
	wake time.Time
	// freezes is what the driver's probe said about freezing, once asked.
	freezes *bool
}

type poolPhase int

const (
	poolNew poolPhase = iota + 1
	poolOpen
	poolClosed
)

// The pool's own deadlines for what has no caller.
const (
	helloTimeout  = 10 * time.Second
	actTimeout    = 30 * time.Second
	courtesy      = 3 * time.Second
	idleGrace     = 2 * time.Second
	counterEvery  = time.Second
	adoptParallel = 32
	renewTries    = 4
	renewPause    = 50 * time.Millisecond
)

// New makes a pool. Nothing runs until Start.
func New(cfg Config) *Pool {
	if cfg.MaxBoxes == 0 {
		cfg.MaxBoxes = 64
	}
	if cfg.MaxTurns == 0 {
		cfg.MaxTurns = 3
	}
	if cfg.FreezeAfter == 0 {
		cfg.FreezeAfter = time.Minute
	}
	if cfg.StopAfter == 0 {
		cfg.StopAfter = 15 * time.Minute
	}
	p := &Pool{
		cfg: cfg, phase: poolNew, kick: make(chan struct{}, 1), grown: make(chan struct{}, 1),
		boxes: map[holdfast.BoxID]*entry{},
	}
	// The only place where a driver's extra powers are looked for.
	p.guard, _ = cfg.Driver.(sandbox.Guard)
	p.freezer, _ = cfg.Driver.(sandbox.Freezer)
	p.warmer, _ = cfg.Driver.(sandbox.Prewarmer)
	p.holder, _ = cfg.Driver.(sandbox.Holder)
	return p
}

// Hold is a claim on a running, connected box. While a hold exists the box is
// neither frozen nor stopped nor evicted. When the pipe of Box breaks the claim
// stands, but Box stays broken: release and acquire again for the new one.
type Hold struct {
	Box *sandbox.Box

	pool  *Pool
	e     *entry
	turn  bool
	stale bool
	once  sync.Once
}

// Stale reports whether the box was in use with other walls than the claim asked for
// and could not be started again. Its processes run without the new walls.
func (h *Hold) Stale() bool { return h.stale }

// WallsHold reports whether all walls that the box was started with are in force.
func (h *Hold) WallsHold() bool { return h.pool.guard == nil || h.pool.guard.WallsHold(h.e.id) }

// Release ends the claim. Idempotent.
func (h *Hold) Release() {
	h.once.Do(func() {
		p := h.pool
		p.mu.Lock()
		defer p.mu.Unlock()
		h.e.holds--
		h.e.dirty = true
		h.e.usedAt = time.Now()
		if h.turn {
			p.endTurn(h.e)
		}
		p.tidy(h.e)
		p.schedule(h.e)
	})
}

// Acquire starts, adopts, thaws or reconnects the box as needed and claims it. turn
// claims count against MaxTurns, and wait when all places for boxes are taken; queued
// receives the position (from 1) each time it changes while waiting. When the pipe breaks
// before anything ran it tries once more with a new box. A box that has other walls than
// spec, or has lost one of its walls, is started again. If something runs in it, it goes
// on and the claim is stale.
func (p *Pool) Acquire(ctx context.Context, spec sandbox.Spec, turn bool, queued func(position int)) (*Hold, error) {
	p.mu.Lock()
	if err := p.isOpen(); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	e := p.entry(spec.Box)
	if e.ready() && p.walled(e, spec.Walls.Hash()) && (!turn || p.turnFree(e)) {
		if turn {
			e.turns++
		}
		h := p.claim(e, turn)
		p.mu.Unlock()
		return h, nil
	}
	e.users++
	seen := e.failures
	p.mu.Unlock()

	h, err := p.acquireSlow(ctx, e, spec, turn, queued, seen)

	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	p.tidy(e)
	return h, err
}

func (p *Pool) acquireSlow(ctx context.Context, e *entry, spec sandbox.Spec, turn bool, queued func(int), seen int) (h *Hold, err error) {
	if turn {
		if err := p.takeTurn(ctx, e, queued); err != nil {
			return nil, err
		}
		defer func() {
			if h == nil {
				p.mu.Lock()
				p.endTurn(e)
				p.mu.Unlock()
			}
		}()
	}
	var place *waiter
	defer func() { p.leaveLine(place) }()
	for {
		h, err = p.acquireNow(ctx, e, spec, turn, seen)
		if !turn || !errors.Is(err, holdfast.ErrFull) {
			return h, err
		}
		if place, err = p.waitForPlace(ctx, e, place, queued); err != nil {
			return nil, err
		}
	}
}

func (p *Pool) acquireNow(ctx context.Context, e *entry, spec sandbox.Spec, turn bool, seen int) (h *Hold, err error) {
	if err := e.lock(ctx); err != nil {
		return nil, err
	}
	defer e.unlock()

	p.mu.Lock()
	err = p.isOpen()
	if err == nil && e.failures > seen {
		// Another Acquire tried while we waited: its answer is ours too.
		err = e.failure
	}
	if err == nil && e.ready() && p.walled(e, spec.Walls.Hash()) {
		h = p.claim(e, turn)
	}
	p.mu.Unlock()
	if h != nil || err != nil {
		return h, err
	}

	stale, err := p.bringWalled(ctx, e, spec)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, holdfast.ErrFull) {
			e.failures++
			e.failure = err
		}
		return nil, err
	}
	h = p.claim(e, turn)
	h.stale = stale
	return h, nil
}

// Live is the connected box of that id, or nil: a look that starts nothing.
func (p *Pool) Live(id holdfast.BoxID) *sandbox.Box {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.boxes[id]; e != nil && e.connected() {
		return e.box
	}
	return nil
}

// Freeze freezes an unused box now; busy when it is held, unavailable when the
// driver cannot, not_found when no such box is connected.
func (p *Pool) Freeze(ctx context.Context, id holdfast.BoxID) error {
	if p.freezer == nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.freeze", "driver %s cannot freeze", holdfast.Quote(p.cfg.Driver.Name()))
	}
	return p.with(ctx, id, func(e *entry) error { return p.freeze(ctx, e) })
}

// Stop ends a box, held or not: SIGTERM, then SIGKILL after grace. Background
// processes that end with it are named in the event.
func (p *Pool) Stop(ctx context.Context, id holdfast.BoxID, reason string, grace time.Duration) error {
	return p.with(ctx, id, func(e *entry) error { return p.stop(ctx, e, reason, grace) })
}

// Remove stops a box and removes the driver's records of it.
func (p *Pool) Remove(ctx context.Context, id holdfast.BoxID) error {
	return p.with(ctx, id, func(e *entry) error { return p.remove(ctx, e) })
}

func (p *Pool) remove(ctx context.Context, e *entry) error {
	if err := p.stop(ctx, e, "removed", 0); err != nil {
		return err
	}
	return p.cfg.Driver.Remove(ctx, e.id)
}

// with runs fn holding the box's op.
func (p *Pool) with(ctx context.Context, id holdfast.BoxID, fn func(*entry) error) error {
	p.mu.Lock()
	if err := p.isOpen(); err != nil {
		p.mu.Unlock()
		return err
	}
	e := p.entry(id)
	e.refs++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		e.refs--
		p.tidy(e)
	}()
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	return fn(e)
}

// List shows the boxes of the driver, with what the pool knows of each, and
// those that are just being started.
func (p *Pool) List(ctx context.Context) ([]holdfast.Container, error) {
	infos, err := p.cfg.Driver.List(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]holdfast.Container, 0, len(infos))
	listed := map[holdfast.BoxID]bool{}
	for _, info := range infos {
		listed[info.Box] = true
		out = append(out, p.container(info))
	}
	for id, e := range p.boxes {
		if !listed[id] && e.slot && e.users > 0 {
			out = append(out, p.container(sandbox.Info{Box: id}))
		}
	}
	return out, nil
}

func (p *Pool) container(info sandbox.Info) holdfast.Container {
	c := holdfast.Container{
		ID: info.Box, Driver: p.cfg.Driver.Name(), State: holdfast.BoxStopped,
		PID: info.PID, Boot: info.Boot, StartedAt: info.StartedAt,
	}
	if s, ok := sessionOf(info.Box); ok {
		c.Session = s
	}
	e := p.boxes[info.Box]
	if info.Running {
		c.State = holdfast.BoxIdle
		if info.Frozen {
			c.State = holdfast.BoxFrozen
		}
	}
	if e == nil {
		return c
	}
	c.LastUsed, c.Calls, c.Queued = e.usedAt, e.holds, len(e.queue)
	if e.boot != "" {
		c.Boot = e.boot
	}
	switch {
	case e.holds > 0 && e.running:
		c.State = holdfast.BoxRunning
	case e.frozen && info.Running:
		c.State = holdfast.BoxFrozen
	case e.users > 0 && e.box == nil:
		c.State = holdfast.BoxStarting
	}
	return c
}

// States counts the boxes that the pool knows without asking the driver: all that
// run, by state.
func (p *Pool) States() map[holdfast.BoxState]int {
	out := map[holdfast.BoxState]int{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.boxes {
		out[p.container(sandbox.Info{Box: id, Running: e.running, Frozen: e.frozen}).State]++
	}
	return out
}

// Close ends the pool's own goroutines and closes its pipes. With stop true it
// also stops every box; otherwise they stay, to be adopted. Idempotent.
func (p *Pool) Close(ctx context.Context, stop bool) error {
	p.mu.Lock()
	if p.phase != poolOpen {
		p.phase = poolClosed
		p.mu.Unlock()
		return nil
	}
	p.phase = poolClosed
	var all []*entry
	for _, e := range p.boxes {
		e.refs++
		all = append(all, e)
		for _, w := range e.queue {
			w.signal()
		}
	}
	for _, w := range p.line {
		w.signal()
	}
	p.mu.Unlock()
	p.cancel()
	p.work.Wait()

	errs := make([]error, len(all)+1)
	var wg sync.WaitGroup
	for i, e := range all {
		wg.Go(func() { errs[i] = p.closeBox(ctx, e, stop) })
	}
	wg.Wait()
	if p.warmer != nil && p.cfg.Prewarm > 0 {
		errs[len(all)] = p.warmer.Prewarm(ctx, 0)
	}
	return joinErrors(errs)
}

func (p *Pool) closeBox(ctx context.Context, e *entry, stop bool) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	if stop {
		return p.stop(ctx, e, "the server shut down", idleGrace)
	}
	p.mu.Lock()
	b := e.box
	e.box = nil
	p.mu.Unlock()
	if b != nil {
		return b.Close()
	}
	return nil
}
