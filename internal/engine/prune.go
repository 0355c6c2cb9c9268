package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

// PruneContainers removes what no session needs: boxes whose session has ended
// or is gone, records of boxes that do not run, and what drivers kept of servers
// and boxes that are no more. A running or idle box of a live session stays. It
// answers what was removed; with DryRun what would be. Idempotent.
func (e *Engine) PruneContainers(ctx context.Context, req holdfast.PruneContainers) (holdfast.PrunedContainers, error) {
	out := holdfast.PrunedContainers{DryRun: req.DryRun, Pruned: []holdfast.Pruned{}}
	list, err := e.pooled(ctx)
	if err != nil {
		return out, err
	}
	plan := planPrune(list, e.boxKnown)
	done, err := sideBySide(plan, func(p pruning) (bool, error) {
		if req.DryRun {
			return true, nil
		}
		return e.prune(ctx, p) // not done: it came to life meanwhile
	})
	for i, p := range plan {
		if done[i] {
			out.Pruned = append(out.Pruned, holdfast.Pruned{Name: string(p.ID), Driver: p.Driver, Session: p.Session, Reason: p.reason})
		}
	}
	if err != nil {
		return out, err
	}
	seen := map[string]bool{}
	for _, t := range []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted} {
		pool := e.cfg.Pools[t]
		if pool == nil || seen[pool.Driver()] {
			continue
		}
		seen[pool.Driver()] = true
		left, err := pool.Leftovers(ctx, !req.DryRun)
		for _, l := range left {
			out.Pruned = append(out.Pruned, holdfast.Pruned{Name: l.Name, Driver: pool.Driver(), Reason: l.Reason})
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// pruning is a box that is to go, and why.
type pruning struct {
	pooled
	wanted bool
	reason string
}

// planPrune decides which boxes go. A box that no session may use goes whether
// it runs or not, as at the start of the server.
func planPrune(list []pooled, known func(holdfast.BoxID) bool) []pruning {
	var out []pruning
	for _, p := range list {
		switch {
		case !known(p.ID):
			out = append(out, pruning{p, false, "no session uses the box"})
		case p.State == holdfast.BoxStopped:
			out = append(out, pruning{p, true, "the box does not run; its record is left"})
		}
	}
	return out
}

func (e *Engine) prune(ctx context.Context, p pruning) (done bool, err error) {
	if p.wanted {
		return p.pool.RemoveStopped(ctx, p.ID)
	}
	return true, p.pool.Remove(ctx, p.ID)
}
