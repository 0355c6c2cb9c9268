package pool

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// backend holds what is common to all boxes of a pool: the driver, its optional interfaces, how to connect
// to a box, and the function that receives events. An interface that the driver lacks is nil. Safe
// for concurrent use.
type backend struct {
	driver  sandbox.Driver
	freezer sandbox.Freezer
	holder  sandbox.Holder
	guard   sandbox.Guard
	sweeper sandbox.Sweeper

	// dialer is the template for connections; its Unanswered is set for each box.
	dialer  sandbox.Dialer
	onEvent func(Event)
	resting func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID
	// grows is called when a box is connected or thawed: from then on the box may take disk space.
	grows func()
	// freezes is whether boxes can be frozen, as the driver's probe reported it; nil before the probe.
	freezes atomic.Pointer[bool]
}

// newBackend makes a backend, and checks which optional interfaces the driver implements, except Prewarmer (see
// newPrewarmed) and Sharer (see join).
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

// name returns the driver's name.
func (b *backend) name() string { return b.driver.Name() }

// emit passes an event of a box to OnEvent. The caller may hold the box's lock op, but no other lock.
func (b *backend) emit(ev Event) {
	if b.onEvent != nil {
		b.onEvent(ev)
	}
}

// agents returns the running calls of a box that are idle agents: see Config.Resting.
func (b *backend) agents(ctx context.Context, box holdfast.BoxID) []holdfast.CallID {
	if b.resting == nil {
		return nil
	}
	return b.resting(ctx, box)
}

// join gives a session its place in a shared box.
func (b *backend) join(ctx context.Context, box holdfast.BoxID, m sandbox.Member) error {
	sharer, ok := b.driver.(sandbox.Sharer)
	if !ok {
		return holdfast.Errorf(holdfast.KindUnavailable, "box", "the driver %s cannot share a box among sessions", b.name())
	}
	m.Token = b.dialer.Token
	return sharer.Join(ctx, box, m)
}

// wallsHold reports whether all walls of a running box are in force. It does no I/O.
func (b *backend) wallsHold(box holdfast.BoxID) bool { return b.guard == nil || b.guard.WallsHold(box) }

// canFreeze reports whether boxes can be frozen on this machine. It probes the driver once, so
// that the pool never announces a freeze that cannot happen.
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

// leftovers lists, or with remove removes, what the driver still stores for boxes and servers
// that no longer exist.
func (b *backend) leftovers(ctx context.Context, remove bool) ([]sandbox.Leftover, error) {
	switch {
	case b.sweeper == nil:
		return nil, nil
	case remove:
		return b.sweeper.Sweep(ctx)
	}
	return b.sweeper.Leftovers(ctx)
}
