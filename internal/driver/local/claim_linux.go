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

// Reserve implements sandbox.Prewarmer: it reserves a ready boot and moves the boot's directory,
// which the boot has mounted, to the path of the box's directory.
func (d *Driver) Reserve(spec sandbox.Spec) (sandbox.Spec, bool) {
	if spec.Workspace != "" && spec.Workspace != filepath.Join(spec.Dir, "workspace") {
		return spec, false
	}
	if special(spec) {
		return spec, false // no ready boot was started with the mounts or the umask that spec asks for
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
			// The box has a directory already, so the boot cannot be used for it.
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
		spec.BoxdUID, spec.ToolUID, spec.ToolGID = b.spec.BoxdUID, b.spec.ToolUID, b.spec.ToolUID
	}
	return spec, true
}

// move moves the boot's directory to the path dir, which must not exist.
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

// take removes a free boot with the given limits from the list and returns it, nil if there is none. r.mu is held.
func (r *readyBoots) take(limits sandbox.Limits) *readyBoot {
	for i, b := range r.free {
		// A boot that died is removed by the next Prewarm, outside of the start of a box.
		if b.limits == limits && b.lives() {
			r.free = append(r.free[:i:i], r.free[i+1:]...)
			return b
		}
	}
	return nil
}

// reserved returns the boot that was reserved for a box, and ends the reservation: the box starts or is removed.
func (d *Driver) reserved(box holdfast.BoxID) *readyBoot {
	d.ready.mu.Lock()
	defer d.ready.mu.Unlock()
	b := d.ready.reserved[box]
	delete(d.ready.reserved, box)
	return b
}

// release ends the boot that was reserved for a box, if one was.
func (d *Driver) release(ctx context.Context, box holdfast.BoxID) error {
	if b := d.reserved(box); b != nil {
		return b.end(ctx)
	}
	return nil
}

// special reports whether spec asks for mounts, path rules or a umask that no ready boot has.
func special(spec sandbox.Spec) bool {
	usual := wire.Config{}
	mask := wire.Config{Umask: spec.Umask}
	return !spec.Walls.Empty() || spec.Agent != "" || spec.Tree != "" || spec.Shared || mask.Mask() != usual.Mask()
}

// startReady starts the box from the boot that was reserved for it; ok reports whether the box
// runs. If it does not, the caller makes an ordinary start, which reports whatever is wrong. The attempt leaves only the
// directories, or also the boot's record or file if the boot could not be ended.
func (d *Driver) startReady(ctx context.Context, spec sandbox.Spec) (r boxproc.Record, ok bool) {
	b := d.reserved(spec.Box)
	if b == nil {
		return r, false
	}
	if special(spec) {
		// Since the boot was reserved, the box has got mounts, path rules or a umask that the boot lacks: end the boot.
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
	// If the removal fails, the record or the file of the boot remains, so that a later sweep finds the rest.
	if b.end(clean) == nil {
		_ = errors.Join(d.clear(clean, spec.Box), d.Dir.Delete(spec.Box))
	}
	return r, false
}

// fits returns an error if a ready boot has another directory or other ids, limits or protections than the box needs.
func (l *launch) fits(b *readyBoot) error {
	s := l.spec
	switch {
	case s.Dir != b.spec.Dir || l.d.root && (s.BoxdUID != b.spec.BoxdUID || s.ToolUID != b.spec.ToolUID || toolGID(s) != toolGID(b.spec)):
		return holdfast.Errorf(holdfast.KindConflict, op, "box %s needs another directory or other uids or gids than those of the prewarmed sandbox that was reserved for it", holdfast.Quote(string(s.Box)))
	case l.limits != b.limits:
		return holdfast.Errorf(holdfast.KindConflict, op, "box %s needs other limits than those of its prewarmed sandbox", holdfast.Quote(string(s.Box)))
	}
	lacks := func(s string) bool { return strings.HasPrefix(s, "landlock: ") }
	if l.needsLandlock() && slices.ContainsFunc(b.missing, lacks) {
		return holdfast.Errorf(holdfast.KindConflict, op, "box %s must have Landlock, but its prewarmed sandbox has none", holdfast.Quote(string(s.Box)))
	}
	return l.accept(b.lacks)
}

// claim turns a ready boot into the box: it writes the record, renames the files and sends boxd its box id.
func (l *launch) claim(ctx context.Context, b *readyBoot) (boxproc.Record, error) {
	d, s := l.d, l.spec
	r, err := withExtra(b.proc.Named(boxproc.Record{Box: s.Box, Spec: s.Hash(), StartedAt: d.cfg.Now()}), extraCgroup, b.cg)
	if err != nil {
		return r, err
	}
	r.Missing = b.missing
	// The record is on disk before boxd learns its box id (see boxproc).
	if err := d.Dir.WriteOver(b.record, r); err != nil {
		return r, err
	}
	for from, to := range map[string]string{b.socketFile(): d.Dir.Socket(s.Box), b.file: d.Dir.Log(s.Box)} {
		if err := unix.Rename(from, to); err != nil {
			return r, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot rename the file %s of a prewarmed sandbox: %w", filepath.Base(from), err)
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
		return r, notReady(err, d.Dir.Log(s.Box))
	}
	_ = b.proc.Control.Close()
	d.mu.Lock()
	d.procs[s.Box] = started{b.proc.Proc, b.cg}
	d.mu.Unlock()
	return r, nil
}
