package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

var _ sandbox.Prewarmer = (*Driver)(nil)

// readyExt is the suffix of the file of a ready boot. The file is the boot's log, and tells the next server about a
// boot that a killed server left: it is made before the boot's cgroup and removed after it.
const readyExt = ".ready"

// maxReady is how many ready boots a caller may request.
const maxReady = 1000

// readyBoot is a boxd in a finished box, with its own limits, ids and directories, that waits to
// be assigned to a session.
type readyBoot struct {
	name string // ready-PID-START-NUMBER, with the pid and the start time of the server
	file string
	cg   boxCgroup
	// spec has the host ids and the directory that the box will have.
	spec sandbox.Spec
	// record is an open file for the box's record, made in advance, because making a file may have to wait for the disk.
	record *os.File
	// limits are the limits requested for the boot; inForce and lacks list those that are
	// enforced and those that are not; missing lists everything that the box lacks.
	limits                  sandbox.Limits
	inForce, lacks, missing []string
	// proc is nil while the boot is being made.
	proc *boxproc.Boot
}

func (b *readyBoot) recordFile() string { return b.file + ".record" }
func (b *readyBoot) socketFile() string { return b.file + ".socket" }

// directory returns the path of the boot's directory, which is renamed to the box's directory later.
func (b *readyBoot) directory() string { return b.file + ".dir" }

// readyBoots are the ready boots of one driver.
type readyBoots struct {
	// filling is locked while Prewarm runs. ctx is the context of the last Prewarm; it is used to
	// end the boots that are left when the driver closes.
	filling sync.Mutex
	ctx     context.Context
	// sweeping is locked during the search for boots that servers which no longer run have left. swept is true
	// once these boots were removed.
	sweeping sync.Mutex
	swept    bool
	ids      idBlock

	mu       sync.Mutex
	free     []*readyBoot
	reserved map[holdfast.BoxID]*readyBoot
	n        int
	limits   sandbox.Limits // the limits of the last box that asked for a ready boot
	// failure is the error of a ready boot that could not become a box since the last Prewarm.
	failure error
	closed  bool
}

// Prewarm implements sandbox.Prewarmer. It ends ready boots in excess of n. If a boot could not
// become a box since the last call, it returns that error; n boots are ready all the same.
func (d *Driver) Prewarm(ctx context.Context, n int) error {
	if n < 0 || n > maxReady {
		return holdfast.Errorf(holdfast.KindInvalid, op, "%d prewarmed sandboxes were requested, but 0 to %d are possible", n, maxReady)
	}
	d.ready.filling.Lock()
	defer d.ready.filling.Unlock()
	d.ready.ctx = context.WithoutCancel(ctx)
	if err := errors.Join(d.sweepReady(ctx), d.trim(ctx, n)); err != nil {
		return err
	}
	for {
		d.ready.mu.Lock()
		enough := len(d.ready.free) >= n || d.ready.closed
		d.ready.n++
		number := d.ready.n
		failure := d.ready.failure
		if enough {
			d.ready.failure = nil
		}
		d.ready.mu.Unlock()
		if enough && failure != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "a prewarmed sandbox could not be turned into a box: %w", failure).WithHint("%s", holdfast.HintOf(failure))
		}
		if enough {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "stopped prewarming sandboxes: %w", err)
		}
		b, err := d.boot(ctx, number)
		if err != nil {
			return err
		}
		d.ready.mu.Lock()
		d.ready.free = append(d.ready.free, b)
		d.ready.mu.Unlock()
	}
}

// trim ends ready boots that died or that exceed n.
func (d *Driver) trim(ctx context.Context, n int) error {
	d.ready.mu.Lock()
	var keep, drop []*readyBoot
	for _, b := range d.ready.free {
		if len(keep) < n && b.lives() {
			keep = append(keep, b)
		} else {
			drop = append(drop, b)
		}
	}
	d.ready.free = keep
	d.ready.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.StartTimeout)
	defer cancel()
	var errs []error
	for _, b := range drop {
		errs = append(errs, b.end(ctx))
	}
	return errors.Join(errs...)
}

// closeReady ends all ready boots and prevents new ones.
func (d *Driver) closeReady() error {
	d.ready.mu.Lock()
	d.ready.closed = true
	d.ready.mu.Unlock()
	d.ready.filling.Lock()
	defer d.ready.filling.Unlock()
	if d.ready.ctx == nil {
		return nil // Prewarm was never called, so there is no ready boot
	}
	d.ready.mu.Lock()
	for box, b := range d.ready.reserved {
		d.ready.free = append(d.ready.free, b)
		delete(d.ready.reserved, box)
	}
	d.ready.mu.Unlock()
	return d.trim(d.ready.ctx, 0)
}

func (b *readyBoot) lives() bool {
	select {
	case <-b.proc.Done():
		return false
	default:
		return true
	}
}

// boot makes one ready boot, with retries as in startAgain.
func (d *Driver) boot(ctx context.Context, number int) (b *readyBoot, err error) {
	err = again(ctx, func(last bool) error {
		b, err = d.bootOnce(ctx, number, last)
		return err
	})
	return b, err
}

func (d *Driver) bootOnce(ctx context.Context, number int, last bool) (*readyBoot, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	start, err := boxproc.StartTime(os.Getpid())
	if err != nil {
		return nil, err
	}
	h := d.cg()
	b := &readyBoot{name: fmt.Sprintf("ready-%d-%d-%d", os.Getpid(), start, number)}
	b.file = filepath.Join(d.Dir.Path(), b.name+readyExt)
	b.cg = h.plan(holdfast.BoxID(b.name))
	if err := d.fill(ctx, h, b, last); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.StartTimeout)
		defer cancel()
		return nil, errors.Join(explain(err), b.end(clean))
	}
	return b, nil
}

func (d *Driver) fill(ctx context.Context, h hierarchy, b *readyBoot, last bool) error {
	log, err := os.OpenFile(b.file, os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the log of a prewarmed sandbox: %w", err)
	}
	defer log.Close()
	if b.record, err = os.OpenFile(b.recordFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the record of a prewarmed sandbox: %w", err)
	}
	f, err := boxproc.ListenAt(b.socketFile())
	if err != nil {
		return err
	}
	b.spec = sandbox.Spec{Dir: b.directory()}
	l := &launch{d: d, cg: b.cg, last: last}
	defer l.close()
	listener := l.hand.Give(f)
	d.ready.mu.Lock()
	b.limits = withDefaults(d.ready.limits) // most boxes have the same limits as the box before them
	d.ready.mu.Unlock()
	if d.root {
		if b.spec.BoxdUID, err = d.ready.ids.next(d.Dir.Path(), d.cfg.ReadyUID); err != nil {
			return err
		}
		b.spec.ToolUID = b.spec.BoxdUID + 1
	}
	l.spec, l.limits = b.spec, b.limits
	if err := l.prepare(ctx); err != nil {
		return err
	}
	l.hand.Config.Listener = listener
	if err := makeToken(filepath.Join(b.directory(), "state"), b.spec.BoxdUID, d.root); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the token file of a prewarmed sandbox: %w", err)
	}
	how, err := l.process(h)
	if err == nil {
		err = b.cg.make(h, leafWork)
	}
	if err == nil {
		err = l.leafFiles(&l.hand)
	}
	if err != nil {
		return err
	}
	err = errors.Join(l.cg.inside(h, l.leaf, func() {
		if b.proc, err = l.d.Dir.Spawn(ctx, how, log); err == nil {
			err = b.proc.Hand(ctx, &l.hand)
		}
	}), err)
	if err != nil {
		return err
	}
	st, err := b.proc.Status(ctx)
	if err != nil {
		return notReady(err, b.file)
	}
	b.inForce, b.lacks = b.cg.limit(h, b.limits)
	b.missing = unique(slices.Concat(b.lacks, []string{diskChecked}, st.Missing))
	return nil
}

// makeToken makes the file for the fencing token in advance, empty, because making a file is slow on some disks.
func makeToken(state string, uid uint32, root bool) error {
	name := filepath.Join(state, wire.TokenFile)
	err := os.WriteFile(name, nil, 0o600)
	if err == nil && root {
		err = os.Lchown(name, int(uid), int(uid))
	}
	return err
}

// end ends a ready boot and removes everything that belongs to it. It may be called again.
func (b *readyBoot) end(ctx context.Context) error {
	if b.proc != nil {
		_ = b.proc.Control.Close()
		err := b.proc.Kill(ctx)
		if err != nil {
			return err
		}
		b.proc.Close()
	}
	if err := b.cg.remove(ctx); err != nil {
		return err
	}
	if b.record != nil {
		_ = b.record.Close()
	}
	if err := os.RemoveAll(b.directory()); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot remove the directory of a prewarmed sandbox: %w", err)
	}
	// Remove the log last: by this file the next server finds whatever else is left.
	for _, f := range []string{b.recordFile(), b.socketFile(), b.file} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot remove a file of a prewarmed sandbox: %w", err)
		}
	}
	return nil
}

// sweepReady removes, once, what servers that no longer run have left of ready boots. Those boots
// end by themselves. It leaves the boots of servers that still run.
func (d *Driver) sweepReady(ctx context.Context) error {
	d.ready.sweeping.Lock()
	defer d.ready.sweeping.Unlock()
	if d.ready.swept {
		return nil
	}
	err := d.sweepOthers(ctx)
	d.ready.swept = err == nil
	return err
}

func (d *Driver) sweepOthers(ctx context.Context) error {
	boots, err := d.othersBoots()
	if err != nil || len(boots) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	var errs []error
	for _, b := range boots {
		errs = append(errs, b.end(ctx))
	}
	return errors.Join(errs...)
}

// othersBoots returns the ready boots of servers that no longer run.
func (d *Driver) othersBoots() ([]*readyBoot, error) {
	files, _ := fs.Glob(os.DirFS(d.Dir.Path()), "ready-*"+readyExt)
	if len(files) == 0 {
		return nil, nil
	}
	named, err := d.named()
	if err != nil {
		return nil, err
	}
	var out []*readyBoot
	for _, f := range files {
		b := &readyBoot{name: strings.TrimSuffix(f, readyExt), file: filepath.Join(d.Dir.Path(), f)}
		if serverLives(b.name) {
			continue
		}
		// A boot that was claimed belongs to a box, whose record names the cgroup.
		if !named[b.name] {
			b.cg = d.cg().plan(holdfast.BoxID(b.name))
		}
		out = append(out, b)
	}
	return out, nil
}

// named returns the names of the cgroups of recorded boxes.
func (d *Driver) named() (map[string]bool, error) {
	records, err := d.Dir.List()
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, r := range records {
		cg := cgroupOf(r)
		for _, dir := range cg.dirs() {
			named[filepath.Base(dir)] = true
		}
	}
	return named, nil
}

// endNameless ends the cgroups of ready boots that became boxes whose record is missing or unreadable.
func (d *Driver) endNameless(ctx context.Context) error {
	names, err := d.nameless()
	if err != nil {
		return err
	}
	for _, name := range names {
		cg := d.cg().plan(holdfast.BoxID(name))
		cg.kill()
		if err := cg.remove(ctx); err != nil {
			return err
		}
	}
	return nil
}

// nameless returns the names of ready boots whose cgroups exist, but which have neither a file of a ready boot
// nor a record of a box. It checks the files before the records, because a ready boot has its file until its
// box has a record.
func (d *Driver) nameless() ([]string, error) {
	found := map[string]bool{}
	for _, base := range d.cg().base {
		dirs, _ := fs.Glob(os.DirFS(base), "ready-*")
		for _, dir := range dirs {
			found[dir] = true
		}
	}
	for name := range found {
		if _, err := os.Stat(filepath.Join(d.Dir.Path(), name+readyExt)); err == nil {
			delete(found, name)
		}
	}
	named, err := d.named()
	if err != nil {
		return nil, err
	}
	for name := range named {
		delete(found, name)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// serverLives reports whether the server that made the ready boot name still runs. If that cannot be found out, it
// returns true: the ready boot of a running server must not be ended.
func serverLives(name string) bool {
	f := strings.Split(name, "-")
	if len(f) != 4 {
		return false
	}
	pid, err := strconv.Atoi(f[1])
	if err != nil {
		return false
	}
	start, err := boxproc.StartTime(pid)
	if err != nil {
		return !holdfast.IsKind(err, holdfast.KindNotFound)
	}
	return strconv.FormatUint(start, 10) == f[2]
}
