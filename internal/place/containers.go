package place

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
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
			out = append(out, container{c, d.Pool})
		}
	}
	return out, nil
}

// mostAtOnce is how many boxes are handled at the same time. A box that does not answer costs
// seconds of waiting, but no work.
const mostAtOnce = 32

// sideBySide calls do for each box concurrently, also after a failure. done reports for each box
// whether do returned true; err is the first failure in the order of the boxes.
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
		id, err := holdfast.ParseBoxID(s)
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
		return true, c.pool.Stop(ctx, c.ID, "asked", 2*time.Second)
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
			WithHint("holdfast containers list")
	}
	return stopped, nil
}

// PruneContainers removes what no session needs: boxes whose session has ended or was deleted,
// records of boxes that do not run, and what drivers still store for servers and boxes that no
// longer exist. A running or idle box of a live session stays. It returns what was removed, or
// with DryRun what would be. It may be called again.
func (b *Boxes) PruneContainers(ctx context.Context, req holdfast.PruneContainers) (holdfast.PrunedContainers, error) {
	out := holdfast.PrunedContainers{DryRun: req.DryRun, Pruned: []holdfast.Pruned{}}
	list, err := b.containers(ctx)
	if err != nil {
		return out, err
	}
	plan := planPrune(list, func(box holdfast.BoxID) bool { return b.known(ctx, box) })
	done, err := sideBySide(plan, func(p pruning) (bool, error) {
		if req.DryRun {
			return true, nil
		}
		return p.prune(ctx) // not done: the box was started meanwhile
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
		left, err := d.Pool.Leftovers(ctx, !req.DryRun)
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
	wanted bool
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

func (p pruning) prune(ctx context.Context) (done bool, err error) {
	if p.wanted {
		return p.pool.RemoveStopped(ctx, p.ID)
	}
	return true, p.pool.Remove(ctx, p.ID)
}
