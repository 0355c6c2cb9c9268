package place

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/pool"
)

// Containers lists the boxes of every driver.
func (b *Boxes) Containers(ctx context.Context) ([]holdfast.Container, error) {
	list, err := b.containers(ctx)
	out := make([]holdfast.Container, len(list))
	for i, c := range list {
		out[i] = c.Container
	}
	return out, err
}

// container is a box together with the pool that has it.
type container struct {
	holdfast.Container
	pool *pool.Pool
}

func (b *Boxes) containers(ctx context.Context) ([]container, error) {
	var out []container
	for _, d := range b.cfg.Drivers {
		list, err := d.Pool.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			if ids, err := b.cfg.Scopes.Members(ctx, c.ID); err == nil && len(ids) > 0 {
				c.Session = ids[0]
			}
			if row, ok := First(ctx, b, c.ID); ok {
				c.Session = row.ID
			}
			out = append(out, container{c, d.Pool})
		}
	}
	return out, nil
}

// mostAtOnce is how many boxes are handled at the same time. A box that does not answer costs
// seconds of waiting, but no work.
const mostAtOnce = 32

// sideBySide calls do for each box concurrently, also after a failure. done reports for each box whether do returned
// true without an error; err is the first failure in the order of the boxes.
func sideBySide[T any](boxes []T, do func(T) (bool, error)) (done []bool, err error) {
	done, errs := make([]bool, len(boxes)), make([]error, len(boxes))
	var g errgroup.Group
	g.SetLimit(mostAtOnce)
	for i, b := range boxes {
		g.Go(func() error {
			did, err := do(b)
			done[i], errs[i] = did && err == nil, err
			return nil
		})
	}
	_ = g.Wait()
	for _, err := range errs {
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// StopContainers ends the boxes with the given ids, or all boxes; sessions, files and logs stay.
func (b *Boxes) StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	if req.All == (len(req.IDs) > 0) {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "containers.stop", "the request must name boxes, or ask for all of them, but not both").
			WithHint("holdfast containers stop NAME, or --all")
	}
	want := map[holdfast.BoxID]bool{}
	for _, s := range req.IDs {
		id, err := holdfast.Parse[holdfast.BoxID](s)
		if err != nil {
			return nil, err
		}
		want[id] = true
	}
	list, err := b.containers(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c container) bool { return !req.All && !want[c.ID] })
	for _, c := range list {
		delete(want, c.ID)
	}
	done, err := sideBySide(list, func(c container) (bool, error) {
		return true, c.pool.Stop(ctx, c.ID, "asked", pool.StopGrace)
	})
	stopped := []holdfast.Container{}
	for i, c := range list {
		if done[i] {
			stopped = append(stopped, c.Container)
		}
	}
	if err != nil {
		return stopped, err
	}
	for id := range want {
		return stopped, holdfast.Errorf(holdfast.KindNotFound, "containers.stop", "there is no box %s", holdfast.Quote(string(id))).
			WithHint("list the boxes: holdfast containers list")
	}
	return stopped, nil
}

// PruneContainers removes what no session needs: boxes whose session has ended or was deleted,
// records of boxes that do not run, and what drivers still store for servers and boxes that no
// longer exist. A running or idle box of a live session stays. It returns what was removed, or
// with dryRun what would be. It may be called again.
func (b *Boxes) PruneContainers(ctx context.Context, dryRun bool) (holdfast.PrunedContainers, error) {
	list, err := b.containers(ctx)
	if err != nil {
		return holdfast.PrunedContainers{DryRun: dryRun, Pruned: []holdfast.Pruned{}}, err
	}
	return prune(ctx, b, planPrune(list, known(ctx, b)), dryRun)
}

// prune removes the boxes in plan and the leftovers of the drivers, and returns what it removed. If dryRun is true, it
// removes nothing, and returns what it would remove.
func prune(ctx context.Context, b *Boxes, plan []pruning, dryRun bool) (holdfast.PrunedContainers, error) {
	out := holdfast.PrunedContainers{DryRun: dryRun, Pruned: []holdfast.Pruned{}}
	done, err := sideBySide(plan, func(p pruning) (bool, error) {
		switch {
		case dryRun:
			return true, nil
		case p.wanted:
			return p.pool.RemoveStopped(ctx, p.ID) // false if the box was started after it was listed
		}
		return p.pool.RemoveOrphan(ctx, p.ID, func() bool { return !known(ctx, b)(p.ID) })
	})
	for i, p := range plan {
		if done[i] {
			out.Pruned = append(out.Pruned, holdfast.Pruned{Name: string(p.ID), Driver: p.Driver, Session: p.Session, Reason: p.reason})
		}
	}
	if err != nil {
		return out, err
	}
	for _, d := range b.cfg.Drivers {
		left, err := d.Pool.Leftovers(ctx, !dryRun)
		for _, l := range left {
			out.Pruned = append(out.Pruned, holdfast.Pruned{Name: l.Name, Driver: d.Pool.Driver(), Reason: l.Reason})
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// pruning is a box that is to be removed, and the reason.
type pruning struct {
	container
	wanted bool // a session may still use the box: only its record is removed
	reason string
}

// planPrune decides which boxes to remove. A box that no session may use is removed whether it
// runs or not, as at the start of the server.
func planPrune(list []container, known func(holdfast.BoxID) bool) []pruning {
	var out []pruning
	for _, p := range list {
		switch {
		case !known(p.ID):
			out = append(out, pruning{p, false, "no session uses the box"})
		case p.State == holdfast.BoxStopped:
			out = append(out, pruning{p, true, "the box is not running, and only its record is left"})
		}
	}
	return out
}

// sweepEvery is how often a server removes what no session can use.
const sweepEvery = 30 * time.Minute

// sweeps sweeps every sweepEvery, until ctx ends.
func sweeps(ctx context.Context, b *Boxes) {
	for clock.Pause(ctx, sweepEvery) == nil {
		sweep(ctx, b)
	}
}

// sweep removes boxes that no session may use, and the leftovers of drivers. A box stays behind if the server or a
// driver failed while a session or workspace ended. Nothing of another server is removed: drivers list only boxes and
// leftovers of this server's data directory. Records of boxes of live sessions stay. If a removal fails, the next
// sweep tries it again.
func sweep(ctx context.Context, b *Boxes) {
	list, err := b.containers(ctx)
	plan := planPrune(list, known(ctx, b))
	plan = slices.DeleteFunc(plan, func(p pruning) bool { return p.wanted })
	if err == nil {
		var done holdfast.PrunedContainers
		done, err = prune(ctx, b, plan, false)
		for _, p := range done.Pruned {
			b.cfg.Log.Info("removed what no session uses", "name", p.Name, "driver", p.Driver, "reason", p.Reason)
		}
	}
	if err != nil && ctx.Err() == nil {
		b.cfg.Log.Warn("boxes that no session uses, and what drivers left over, could not all be removed; the next try follows", "error", err)
	}
}
