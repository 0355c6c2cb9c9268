package pool

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Start adopts (or if stop is true ends) the boxes that the driver lists, removes those for which
// known returns false, and starts the pool's goroutines. It thaws an adopted box before its
// hello. A box that does not answer is left to the next Acquire; a conflict (a newer server owns
// the boxes) makes Start fail.
func (p *Pool) Start(ctx context.Context, stop bool, known func(holdfast.BoxID) bool) error {
	if p.backend.dialer.Token == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "pool.start", "the fencing token is 0: it must be higher than the previous server's token")
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
		// Return the first error, not that of Close, which here stops no box.
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

// adopt adopts a box that a former server left, or stops it (stop), or removes it if no session
// owns it (not known).
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
			return e.box.stop(ctx, holdfast.BoxEnded{Reason: "the server started with on_start: stop"}, StopGrace)
		}
		return e.box.adopt(ctx)
	})
}
