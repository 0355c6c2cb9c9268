package pool

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Start adopts (or with stop true ends) the boxes that the driver lists, removes those that
// known does not know, and starts the idle timer. An adopted box is thawed before its hello. A
// box that does not answer is left to the next Acquire; a conflict (a newer server owns the
// boxes) fails the start.
func (p *Pool) Start(ctx context.Context, stop bool, known func(holdfast.BoxID) bool) error {
	if p.backend.dialer.Token == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "pool.start", "the fencing token is 0: it must be higher than that of the server before")
	}
	if err := p.core.begin(ctx); err != nil {
		return err
	}
	infos, err := p.backend.driver.List(ctx)
	if err == nil {
		var g errgroup.Group
		g.SetLimit(adoptParallel)
		for _, info := range infos {
			g.Go(func() error { return p.adopt(ctx, info, stop, known(info.Box)) })
		}
		err = g.Wait()
	}
	if err != nil {
		// The failure is what the caller wants to know; nothing is stopped here.
		_ = p.Close(ctx, false)
		return err
	}
	p.core.mu.Lock()
	p.core.spawn(p.roster.clean)
	if p.disk.Disk != nil {
		p.core.spawn(func() { p.disk.watch(p.core.ctx, p.roster) })
	}
	p.core.mu.Unlock()
	p.ready.refill()
	return nil
}

// adopt takes over, stops or removes a box that a former server left.
func (p *Pool) adopt(ctx context.Context, info sandbox.Info, stop, known bool) error {
	switch {
	case !known:
		return p.Remove(ctx, info.Box)
	case !info.Running:
		return nil
	}
	return p.roster.with(ctx, info.Box, func(e *entry) error {
		p.core.mu.Lock()
		p.places.keep(info.Box)
		p.core.mu.Unlock()
		e.box.inherit(info)
		if stop {
			return e.box.stop(ctx, holdfast.BoxEnded{Reason: "the server started with on_start: stop"}, idleGrace)
		}
		return e.box.adopt(ctx)
	})
}
