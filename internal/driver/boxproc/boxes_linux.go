package boxproc

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Boxes is the part of a sandbox.Driver that does not depend on what its boxes are made of: a
// driver embeds it. Connect, Stop and Remove implement sandbox.Driver, Leftovers and Sweep sandbox.Sweeper. Its
// methods may be called concurrently.
type Boxes struct {
	Dir   *Dir
	Locks Locks
	// Clear ends a box and removes everything that belongs to it except its directories, record, socket and log. It may
	// be called again. The box's lock is held.
	Clear func(ctx context.Context, box holdfast.BoxID) error
	// Release gives up what the driver has reserved for a box that was not started yet, such as a ready boot. End
	// calls it before Clear. Optional.
	Release func(ctx context.Context, box holdfast.BoxID) error
}

// CheckSpec returns invalid for a box id or a path that no driver of this machine accepts.
func CheckSpec(spec sandbox.Spec) error {
	if _, err := holdfast.Parse[holdfast.BoxID](string(spec.Box)); err != nil {
		return err
	}
	for what, p := range map[string]string{"directory": spec.Dir, "workspace": spec.Workspace, "agent's directory": spec.Agent, "tree": spec.Tree} {
		if p == "" && what != "directory" {
			continue
		}
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return holdfast.Errorf(holdfast.KindInvalid, "boxproc.ensure", "the box's %s %s is not a clean absolute path", what, holdfast.Quote(p))
		}
	}
	return nil
}

// Found returns the record of a box whose boxd accepts connections. If the box has another record (the box was stopped,
// ended by itself or was cut off at its start, or the record is unreadable), Found removes what is left of it. If it
// cannot find out whether the box runs, it returns an error and removes nothing. The box's lock is held.
func (b *Boxes) Found(ctx context.Context, box holdfast.BoxID) (r Record, ok bool, err error) {
	r, err = b.Dir.Read(box)
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return r, false, nil
	case holdfast.IsKind(err, holdfast.KindBusy):
		return r, false, err
	case err == nil:
		if ok, err = b.Dir.Alive(r); err == nil && ok {
			ok, err = b.serves(ctx, r)
		}
		if err != nil || ok {
			return r, ok && err == nil, err
		}
	}
	return r, false, errors.Join(b.Clear(ctx, box), b.Dir.Delete(box))
}

// Running returns the record of a box that runs; not_found if it does not run, internal if its record is unreadable,
// busy or unavailable if it cannot be found out whether the box runs.
func (b *Boxes) Running(box holdfast.BoxID) (Record, error) {
	r, err := b.Dir.Read(box)
	if err == nil {
		var alive bool
		if alive, err = b.Dir.Alive(r); err == nil && !alive {
			err = NotRunning(box)
		}
	}
	return r, err
}

// NotRunning returns the error for a box that does not run, of kind not_found.
func NotRunning(box holdfast.BoxID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "boxproc", "box %s is not running", holdfast.Quote(string(box)))
}

// Connect implements sandbox.Driver.
func (b *Boxes) Connect(ctx context.Context, box holdfast.BoxID) (net.Conn, error) {
	r, err := b.Running(box)
	if err != nil {
		return nil, err
	}
	conn, err := b.Dir.Dial(ctx, box)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		b.outlive(ctx, r)
	}
	return conn, err
}

// serves reports whether the recorded boxd accepts connections. If no boxd listens, the recorded one is ending: serves
// waits until it has ended, but at most endingTime.
func (b *Boxes) serves(ctx context.Context, r Record) (bool, error) {
	conn, err := b.Dir.Dial(ctx, r.Box)
	switch {
	case err == nil:
		_ = conn.Close()
		return true, nil
	case holdfast.IsKind(err, holdfast.KindNotFound):
		b.outlive(ctx, r)
		return false, nil
	}
	return false, err
}

// endingTime is how long outlive waits for the end of a boxd that no longer accepts connections.
const endingTime = 10 * time.Second

// outlive waits for the end of a boxd that is ending. boxd closes its listener before its processes have ended, and
// until then List would show the box as running.
func (b *Boxes) outlive(ctx context.Context, r Record) {
	p, err := b.Dir.Find(r)
	if err != nil {
		return
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(ctx, endingTime)
	defer cancel()
	// If the boxd did not end in time, the next call for the box finds that out.
	_ = p.Wait(ctx)
}

// Stop implements sandbox.Driver.
func (b *Boxes) Stop(ctx context.Context, box holdfast.BoxID) error {
	return b.end(ctx, box, b.Dir.Ended)
}

// Remove implements sandbox.Driver.
func (b *Boxes) Remove(ctx context.Context, box holdfast.BoxID) error {
	return b.end(ctx, box, b.Dir.Delete)
}

func (b *Boxes) end(ctx context.Context, box holdfast.BoxID, record func(holdfast.BoxID) error) error {
	if _, err := holdfast.Parse[holdfast.BoxID](string(box)); err != nil {
		return err
	}
	unlock, err := b.Locks.Lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	if r, err := b.Dir.Read(box); err == nil && r.PID != 0 {
		if alive, err := b.Dir.Alive(r); err == nil && !alive {
			record = b.Dir.Delete // the box died by itself: delete its record too
		}
	}
	return b.End(ctx, box, record)
}

// End calls Release and Clear for a box and, if they succeed, record, which changes or deletes the box's record. The
// box's lock is held.
func (b *Boxes) End(ctx context.Context, box holdfast.BoxID, record func(holdfast.BoxID) error) error {
	var err error
	if b.Release != nil {
		err = b.Release(ctx, box)
	}
	if err = errors.Join(err, b.Clear(ctx, box)); err != nil {
		return err
	}
	return record(box)
}

// Info describes a box from its record. It returns an error if it cannot find out whether the box runs.
func (b *Boxes) Info(r Record) (sandbox.Info, error) {
	alive, err := b.Dir.Alive(r)
	i := sandbox.Info{Box: r.Box, Running: alive, StartedAt: r.StartedAt, Missing: r.Missing}
	if i.Running {
		i.PID, i.Spec = r.PID, r.Spec
	}
	return i, err
}

// Leftovers lists the files of the driver's directory that belong to no recorded box: see Dir.Strays.
func (b *Boxes) Leftovers(context.Context) ([]sandbox.Leftover, error) {
	return leftovers(b.Dir.Strays(StrayAge))
}

// Sweep removes the files that Leftovers lists.
func (b *Boxes) Sweep(context.Context) ([]sandbox.Leftover, error) {
	return leftovers(b.Dir.Sweep(StrayAge))
}

func leftovers(names []string, err error) ([]sandbox.Leftover, error) {
	var out []sandbox.Leftover
	for _, name := range names {
		out = append(out, sandbox.Leftover{Name: name, Reason: "a file of a box without a record"})
	}
	return out, err
}
