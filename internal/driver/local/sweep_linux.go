package local

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Leftovers implements sandbox.Sweeper.
func (d *Driver) Leftovers(context.Context) ([]sandbox.Leftover, error) {
	strays, err := d.dir.Strays(boxproc.StrayAge)
	boots, berr := d.othersBoots()
	cgroups, cerr := d.nameless()
	if err := errors.Join(err, berr, cerr); err != nil {
		return nil, err
	}
	var out []sandbox.Leftover
	for _, name := range strays {
		out = append(out, sandbox.Leftover{Name: name, Reason: "a file of a box without a record"})
	}
	for _, b := range boots {
		out = append(out, sandbox.Leftover{Name: b.name, Reason: "a ready boot of a server that is gone"})
	}
	for _, name := range cgroups {
		out = append(out, sandbox.Leftover{Name: name, Reason: "a cgroup of no box"})
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
	_, err = d.dir.Sweep(boxproc.StrayAge)
	return found, errors.Join(err, d.sweepOthers(ctx), d.endNameless(ctx))
}
