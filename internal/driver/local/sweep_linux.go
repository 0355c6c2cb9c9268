package local

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Leftovers implements sandbox.Sweeper.
func (d *Driver) Leftovers(ctx context.Context) ([]sandbox.Leftover, error) {
	out, err := d.Boxes.Leftovers(ctx)
	boots, berr := d.othersBoots()
	cgroups, cerr := d.nameless()
	if err := errors.Join(err, berr, cerr); err != nil {
		return nil, err
	}
	for _, b := range boots {
		out = append(out, sandbox.Leftover{Name: b.name, Reason: "a ready boot of a server that is gone"})
	}
	for _, name := range cgroups {
		out = append(out, sandbox.Leftover{Name: name, Reason: "a cgroup that belongs to no box"})
	}
	return out, nil
}

// Sweep implements sandbox.Sweeper.
func (d *Driver) Sweep(ctx context.Context) ([]sandbox.Leftover, error) {
	d.ready.sweeping.Lock()
	defer d.ready.sweeping.Unlock()
	found, err := d.Leftovers(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	_, err = d.Boxes.Sweep(ctx)
	return found, errors.Join(err, d.sweepOthers(ctx), d.endNameless(ctx))
}

// sweepDead removes what is left of boxes that died while no server ran, or during their start.
// If that fails for a box, its record stays, and the next start of the box tries again.
func (d *Driver) sweepDead(ctx context.Context) {
	records, err := d.Dir.List()
	if err != nil {
		return
	}
	for _, r := range records {
		_ = d.endDead(ctx, r.Box)
	}
}

// endDead removes what is left of a box that does not run. A box that is being started looks the
// same, but its lock is held: so endDead reads the record under the lock.
func (d *Driver) endDead(ctx context.Context, box holdfast.BoxID) error {
	unlock, err := d.Locks.Lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.Dir.Read(box)
	if err != nil {
		return err
	}
	if alive, err := d.Dir.Alive(r); err != nil || alive {
		return err
	}
	if cg := cgroupOf(r); r.PID == 0 && !cg.exists() {
		return nil
	}
	return d.End(ctx, box, d.Dir.Delete)
}

func (c *boxCgroup) exists() bool {
	return slices.ContainsFunc(c.dirs(), func(dir string) bool { return unix.Access(dir, unix.F_OK) == nil })
}
