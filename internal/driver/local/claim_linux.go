package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Reserve implements sandbox.Prewarmer: the directory that a ready boot has
// mounted is moved to where the box's is to be.
func (d *Driver) Reserve(spec sandbox.Spec) (sandbox.Spec, bool) {
	if spec.Workspace != "" && spec.Workspace != filepath.Join(spec.Dir, "workspace") {
		return spec, false
	}
	if !spec.Walls.Empty() || spec.Agent != "" {
		return spec, false // a ready boot has its mounts already
	}
	d.ready.mu.Lock()
	defer d.ready.mu.Unlock()
	d.ready.limits = spec.Limits
	b := d.ready.reserved[spec.Box]
	if b == nil {
		if b = d.ready.take(withDefaults(spec.Limits)); b == nil {
			return spec, false
		}
		if err := b.move(spec.Dir); err != nil {
			// There is a directory: the boot is for another box.
			d.ready.free = append(d.ready.free, b)
			return spec, false
		}
		b.spec.Dir = spec.Dir
		d.ready.reserved[spec.Box] = b
	}
	if b.spec.Dir != spec.Dir {
		return spec, false
	}
	if d.root {
		spec.BoxdUID, spec.ToolUID = b.spec.BoxdUID, b.spec.ToolUID
	}
	return spec, true
}

// move gives the boot's directory another place, where nothing may be.
func (b *readyBoot) move(dir string) error {
	move := func() error {
		return unix.Renameat2(unix.AT_FDCWD, b.directory(), unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	}
	err := move()
	if err == unix.ENOENT && os.MkdirAll(filepath.Dir(dir), 0o700) == nil {
		err = move()
	}
	return err
}

// take is a free boot with the given limits; nil without one. r.mu is held.
func (r *readyBoots) take(limits sandbox.Limits) *readyBoot {
	for i, b := range r.free {
		// A dead one is ended by the next Prewarm, off the path.
		if b.limits == limits && b.lives() {
			r.free = append(r.free[:i:i], r.free[i+1:]...)
			return b
		}
	}
	return nil
}

// reserved is the boot of a box that starts or goes away.
func (d *Driver) reserved(box holdfast.BoxID) *readyBoot {
	d.ready.mu.Lock()
	defer d.ready.mu.Unlock()
	b := d.ready.reserved[box]
	delete(d.ready.reserved, box)
	return b
}

// release ends the boot that was reserved for a box, if there is one.
func (d *Driver) release(ctx context.Context, box holdfast.BoxID) error {
	if b := d.reserved(box); b != nil {
		return b.end(ctx)
	}
	return nil
}

// startReady starts the box out of the boot reserved for it; ok says whether it
// runs. When it does not, nothing is left of the attempt but the directories, and
// a start from nothing will say what is wrong, if anything is.
func (d *Driver) startReady(ctx context.Context, spec sandbox.Spec) (r boxproc.Record, ok bool) {
	b := d.reserved(spec.Box)
	if b == nil {
		return r, false
	}
	if !spec.Walls.Empty() || spec.Agent != "" {
		// It was reserved before the path rules existed, and has its mounts already.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.StartTimeout)
		defer cancel()
		_ = b.end(clean)
		return r, false
	}
	l := &launch{d: d, spec: spec, limits: withDefaults(spec.Limits), cg: b.cg}
	err := l.fits(b)
	if err == nil {
		r, err = l.claim(ctx, b)
	}
	if err == nil {
		return r, true
	}
	d.ready.mu.Lock()
	d.ready.failure = err
	d.ready.mu.Unlock()
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.StartTimeout)
	defer cancel()
	// What cannot be removed now has its record or its file, and is swept later.
	if b.end(clean) == nil {
		_ = errors.Join(d.clear(clean, spec.Box), d.dir.Delete(spec.Box))
	}
	return r, false
}

// fits refuses a boot that is not what the box wants.
func (l *launch) fits(b *readyBoot) error {
	s := l.spec
	switch {
	case s.Dir != b.spec.Dir || l.d.root && (s.BoxdUID != b.spec.BoxdUID || s.ToolUID != b.spec.ToolUID):
		return holdfast.Errorf(holdfast.KindConflict, op, "box %s is not what its ready boot was reserved for", holdfast.Quote(string(s.Box)))
	case l.limits != b.limits:
		return holdfast.Errorf(holdfast.KindConflict, op, "box %s has other limits than its ready boot", holdfast.Quote(string(s.Box)))
	}
	lacks := func(s string) bool { return strings.HasPrefix(s, "landlock: ") }
	if l.needsLandlock() && slices.ContainsFunc(b.missing, lacks) {
		return holdfast.Errorf(holdfast.KindConflict, op, "box %s needs Landlock, its ready boot has none", holdfast.Quote(string(s.Box)))
	}
	return l.accept(b.lacks)
}

// claim is everything between a ready boot and its box.
func (l *launch) claim(ctx context.Context, b *readyBoot) (boxproc.Record, error) {
	d, s := l.d, l.spec
	r, err := withCgroup(b.proc.Named(boxproc.Record{Box: s.Box, StartedAt: d.cfg.Now()}), b.cg)
	if err != nil {
		return r, err
	}
	r.Missing = b.missing
	// The record is on disk before the boot learns what it is (see boxproc).
	if err := d.dir.WriteOver(b.record, r); err != nil {
		return r, err
	}
	for from, to := range map[string]string{b.socketFile(): d.dir.Socket(s.Box), b.file: d.dir.Log(s.Box)} {
		if err := unix.Rename(from, to); err != nil {
			return r, holdfast.Errorf(holdfast.KindUnavailable, op, "%s: %w", filepath.Base(from), err)
		}
	}
	if err := b.proc.Claim(ctx, wire.Claim{
		Box: string(s.Box), Env: environment(), SpoolBytes: s.SpoolBytes, OrphanAfter: s.OrphanAfter,
		InForce: b.inForce, Missing: append(slices.Clone(b.lacks), diskChecked),
	}); err != nil {
		return r, err
	}
	_ = b.record.Close()
	if _, err := b.proc.Status(ctx); err != nil {
		return r, notReady(err, d.dir.Log(s.Box))
	}
	_ = b.proc.Control.Close()
	d.mu.Lock()
	d.procs[s.Box] = b.proc.Proc
	d.mu.Unlock()
	return r, nil
}
