package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// startReady starts the box out of a ready boot; ok says whether it runs. When it
// does not, nothing is left of the attempt but the directories, and a start from
// nothing will say what is wrong, if anything is.
func (d *Driver) startReady(ctx context.Context, spec sandbox.Spec) (r boxproc.Record, ok bool) {
	b := d.take(spec.Limits)
	if b == nil {
		return r, false
	}
	l := &launch{d: d, spec: spec, limits: withDefaults(spec.Limits), shared: -1, cg: b.cg}
	defer l.close()
	r, err := l.claim(ctx, b)
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

// claim is everything between a ready boot and its box.
func (l *launch) claim(ctx context.Context, b *readyBoot) (boxproc.Record, error) {
	d, box := l.d, l.spec.Box
	r, err := withCgroup(b.proc.Named(boxproc.Record{Box: box, StartedAt: d.cfg.Now()}), b.cg)
	if err != nil {
		return r, err
	}
	limited := l.limitWith(b)
	moved := l.bring(b)
	workspace, err := l.directories()
	var claim wire.Claim
	if err == nil {
		claim, err = l.ask(workspace, b.listener)
	}
	after, before := limited()
	defer func() { _ = after() }() // it must not outlive the claim
	if err = errors.Join(err, before); err != nil {
		return r, err
	}
	l.missing = append(l.missing, "disk-limit: checked, not enforced")
	claim.Config.Jail.InForce = append(append([]string{}, namespaceNames...), l.inForce...)
	claim.Config.Jail.Missing = l.missing
	r.Missing = unique(l.missing)
	// The record is on disk before the boot learns what it is (see boxproc).
	if err := d.dir.WriteOver(b.record, r); err != nil {
		return r, err
	}
	for from, to := range map[string]string{b.socketFile(): d.dir.Socket(box), b.file: d.dir.Log(box)} {
		if err := unix.Rename(from, to); err != nil {
			return r, holdfast.Errorf(holdfast.KindUnavailable, op, "%s: %w", filepath.Base(from), err)
		}
	}
	if d.root {
		if err := writeMaps(r.PID, l.spec); err != nil {
			return r, err
		}
	}
	if err := b.proc.Claim(ctx, claim, l.files); err != nil {
		return r, err
	}
	l.close()
	l.files = nil
	b.letGo()
	if !moved {
		unused := make(chan struct{})
		go func() {
			// The session had a directory. What is left of this one is swept.
			_ = os.RemoveAll(b.directory())
			close(unused)
		}()
		defer func() { <-unused }()
	}
	st, err := l.await(ctx, b.proc.Control)
	if err = errors.Join(err, after()); err != nil {
		return r, err
	}
	_ = b.proc.Control.Close()
	d.mu.Lock()
	d.procs[box] = b.proc.Proc
	d.mu.Unlock()
	if missing := unique(append(st.Missing, l.missing...)); !slices.Equal(missing, r.Missing) {
		r.Missing = missing
		return r, d.dir.Write(r)
	}
	return r, nil
}

// bring gives a new session the directory made ahead. On some disks making one
// takes a millisecond, and moving it none. Whatever is in the way, directories
// does what is left to do.
func (l *launch) bring(b *readyBoot) (moved bool) {
	if l.spec.Workspace != "" && l.spec.Workspace != filepath.Join(l.spec.Dir, "workspace") {
		_ = unix.Rmdir(filepath.Join(b.directory(), "workspace"))
	}
	move := func() error {
		return unix.Renameat2(unix.AT_FDCWD, b.directory(), unix.AT_FDCWD, l.spec.Dir, unix.RENAME_NOREPLACE)
	}
	err := move()
	if err == unix.ENOENT && os.MkdirAll(filepath.Dir(l.spec.Dir), 0o700) == nil {
		err = move()
	}
	return err == nil
}

// limitWith begins to limit the box. What it returns waits for what has to be
// done before the claim is sent, and gives what has to be waited for before the
// box is anybody's. Limits that are in place already are verified meanwhile; when
// they are found changed, the boot is of no use.
func (l *launch) limitWith(b *readyBoot) func() (after func() error, before error) {
	h, check := l.d.cg(), *l
	done := make(chan error, 1)
	go func() { done <- check.limit(h) }()
	wait := sync.OnceValue(func() error { return <-done })
	if l.limits != b.limits {
		return func() (func() error, error) {
			err := wait()
			l.inForce, l.missing = check.inForce, check.missing
			return wait, err
		}
	}
	l.inForce, l.missing = slices.Clone(b.inForce), slices.Clone(b.missing)
	return func() (func() error, error) {
		return func() error {
			if err := wait(); err != nil {
				return err
			}
			if !slices.Equal(check.inForce, b.inForce) || !slices.Equal(check.missing, b.missing) {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "limits of a ready boot have changed: %v are in force, were %v", check.inForce, b.inForce)
			}
			return nil
		}, nil
	}
}

// ask makes the claim; its descriptors are indexes into l.files.
func (l *launch) ask(workspace string, listener *os.File) (wire.Claim, error) {
	s, host := l.spec, hostname(l.spec.Box)
	index := func(f *os.File) int {
		l.give(f)
		return len(l.files) - 1
	}
	mounts := planLate(host, workspace, filepath.Join(s.Dir, "home"), l.limits, !l.d.root)
	if l.d.root {
		if err := openTrees(mounts, index); err != nil {
			return wire.Claim{}, err
		}
		if l.cg.V2 && len(l.cg.Dirs) > 0 {
			if err := l.cg.delegate(s.BoxdUID); err != nil {
				return wire.Claim{}, err
			}
		}
	}
	state, err := os.Open(filepath.Join(s.Dir, "state"))
	if err != nil {
		return wire.Claim{}, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	c := wire.Claim{State: index(state)}
	c.Config = l.config(host)
	c.Config.ListenFD = index(listener)
	c.Config.Jail.Mounts = mounts
	return c, nil
}

// deadline is what await needs of the end it reads from.
type deadline interface {
	Read([]byte) (int, error)
	SetReadDeadline(time.Time) error
}
