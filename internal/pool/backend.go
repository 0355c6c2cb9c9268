package pool

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// backend is the driver of a pool with its extra powers, and what is the same for all of the
// pool's boxes: how to connect to one, and whom to tell what happens to it. A power that the
// driver does not have is nil. Safe for concurrent use.
type backend struct {
	driver  sandbox.Driver
	freezer sandbox.Freezer
	holder  sandbox.Holder
	guard   sandbox.Guard
	sweeper sandbox.Sweeper

	// dialer lacks Unanswered, which differs for each box.
	dialer  sandbox.Dialer
	onEvent func(Event)
	resting func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID
	// grows is called when a box begins to run or goes on: from then on it may take disk space.
	grows func()
	// freezes is whether the driver's probe said that boxes can be frozen; nil until then.
	freezes atomic.Pointer[bool]
}

// newBackend is the only place where a driver's extra powers are looked for, but for
// Prewarmer: see newPrewarmed.
func newBackend(cfg Config, grows func()) *backend {
	b := &backend{
		driver: cfg.Driver, onEvent: cfg.OnEvent, resting: cfg.Resting, grows: grows,
		dialer: sandbox.Dialer{Token: cfg.Token, Accepted: cfg.Accepted, Patience: cfg.Patience},
	}
	b.freezer, _ = cfg.Driver.(sandbox.Freezer)
	b.holder, _ = cfg.Driver.(sandbox.Holder)
	b.guard, _ = cfg.Driver.(sandbox.Guard)
	b.sweeper, _ = cfg.Driver.(sandbox.Sweeper)
	return b
}

// name is the driver's name.
func (b *backend) name() string { return b.driver.Name() }

// emit tells what happened to a box; no lock but the box's op is held.
func (b *backend) emit(ev Event) {
	if b.onEvent != nil {
		b.onEvent(ev)
	}
}

// agents are the calls of a box that run and do nothing: see Config.Resting.
func (b *backend) agents(ctx context.Context, box holdfast.BoxID) []holdfast.CallID {
	if b.resting == nil {
		return nil
	}
	return b.resting(ctx, box)
}

// wallsHold reports whether all walls of a running box are in force. It does no I/O.
func (b *backend) wallsHold(box holdfast.BoxID) bool { return b.guard == nil || b.guard.WallsHold(box) }

// canFreeze reports whether boxes can be frozen on this machine. It asks the driver's probe
// once, so that a freeze that cannot happen is never announced.
func (b *backend) canFreeze(ctx context.Context) bool {
	if b.freezer == nil {
		return false
	}
	if known := b.freezes.Load(); known != nil {
		return *known
	}
	can := true
	for _, c := range b.driver.Probe(ctx).Capabilities {
		if c.Name == "freeze" {
			can = c.OK
		}
	}
	if ctx.Err() == nil {
		b.freezes.Store(&can)
	}
	return can
}

// leftovers lists, or with remove removes, what the driver keeps of boxes and servers that
// are gone.
func (b *backend) leftovers(ctx context.Context, remove bool) ([]sandbox.Leftover, error) {
	switch {
	case b.sweeper == nil:
		return nil, nil
	case remove:
		return b.sweeper.Sweep(ctx)
	}
	return b.sweeper.Leftovers(ctx)
}
