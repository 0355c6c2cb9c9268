package pool

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// RemoveStopped removes the driver's records of a box that does not run, and
// reports whether it did: a box that runs, or is being started, stays as it is.
func (p *Pool) RemoveStopped(ctx context.Context, id holdfast.BoxID) (removed bool, err error) {
	err = p.with(ctx, id, func(e *entry) error {
		p.mu.Lock()
		running, inUse := e.running, !e.unused()
		p.mu.Unlock()
		if inUse || running {
			return nil
		}
		// op keeps this pool from starting it; another pool of the same driver may
		// have done so since it was listed.
		infos, err := p.cfg.Driver.List(ctx)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Box == id && !info.Running {
				removed = true
				return p.remove(ctx, e)
			}
		}
		return nil
	})
	return removed && err == nil, err
}

// Leftovers is what the driver keeps of boxes and servers that are no more; with
// remove it is removed as well.
func (p *Pool) Leftovers(ctx context.Context, remove bool) ([]sandbox.Leftover, error) {
	s, ok := p.cfg.Driver.(sandbox.Sweeper)
	switch {
	case !ok:
		return nil, nil
	case remove:
		return s.Sweep(ctx)
	}
	return s.Leftovers(ctx)
}

// Driver is the name of the pool's driver.
func (p *Pool) Driver() string { return p.cfg.Driver.Name() }
