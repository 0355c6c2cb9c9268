package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver starts boxes made of Linux namespaces. It implements sandbox.Driver and all optional interfaces of package
// sandbox. Make one with New. After Close the boxes keep running.
type Driver struct {
	boxproc.Boxes
	cfg  Config
	root bool
	cg   func() hierarchy

	mu      sync.Mutex
	program *os.File // the open boxd program; nil until it is first needed
	procs   map[holdfast.BoxID]started
	// probes are the boxes that Probe runs now.
	probes map[holdfast.BoxID]bool

	// trees are locked by workspace: see lockTree.
	trees boxproc.Locks

	ready readyBoots
	watch watcher
	host  hostFiles
	// deadOnce makes sure that the clean-up after boxes that died while no server ran is done only once.
	deadOnce sync.Once
}

var (
	_ sandbox.Driver  = (*Driver)(nil)
	_ sandbox.Freezer = (*Driver)(nil)
	_ sandbox.Guard   = (*Driver)(nil)
	_ sandbox.Sharer  = (*Driver)(nil)

	_ sandbox.RootTrees = (*Driver)(nil)
)

// New opens the driver's directory and removes unfinished files that a killed server left there. It fails with invalid
// for a bad configuration.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	dir, err := boxproc.Open(filepath.Join(cfg.Home, "run", "local"), cfg.Owner)
	if err != nil {
		return nil, err
	}
	if _, err := dir.Sweep(0); err != nil {
		return nil, err
	}
	// Remove directories of a former Probe; if its box still runs, it is listed like any other.
	stale, _ := fs.Glob(os.DirFS(dir.Path()), "probe-*")
	for _, name := range stale {
		if err := os.RemoveAll(filepath.Join(dir.Path(), name)); err != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot remove the directory of an earlier test box: %w", err)
		}
	}
	d := &Driver{cfg: cfg, root: os.Geteuid() == 0, procs: map[holdfast.BoxID]started{}, probes: map[holdfast.BoxID]bool{}}
	d.Dir, d.Clear, d.Release = dir, d.clear, d.release
	d.ready.reserved = map[holdfast.BoxID]*readyBoot{}
	name := "holdfast-" + dir.Owner()
	d.cg = sync.OnceValue(func() hierarchy { return findHierarchy(name, cfg.CgroupRoot) })
	return d, nil
}

// Close closes the driver's files and its handles of running boxes, which keep running. Ready
// boots are not boxes yet: it ends them.
func (d *Driver) Close() error {
	err := errors.Join(d.closeReady(), d.watch.close())
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.procs {
		p.Close()
	}
	d.procs = map[holdfast.BoxID]started{}
	if d.program != nil {
		err = errors.Join(err, d.program.Close())
		d.program = nil
	}
	// A start that was killed early leaves the cgroup directory of all boxes, but no record.
	for _, base := range d.cg().base {
		_ = unix.Rmdir(base)
	}
	return err
}

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "local" }

// Ensure implements sandbox.Driver.
func (d *Driver) Ensure(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := checkSpec(spec, d.root, d.cfg.RootTrees); err != nil {
		return sandbox.Info{}, err
	}
	unlock, err := d.Locks.Lock(ctx, spec.Box)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer unlock()
	switch r, ok, err := d.Found(ctx, spec.Box); {
	case err != nil:
		return sandbox.Info{}, err
	case ok:
		return d.info(r)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	_ = d.sweepReady(ctx)
	r, ok := d.startReady(ctx, spec)
	if !ok {
		if r, _, err = d.startAgain(ctx, spec); err != nil {
			return sandbox.Info{}, err
		}
	}
	// Running needs no check: boxd has just reported that it serves.
	return sandbox.Info{Box: r.Box, Running: true, PID: r.PID, StartedAt: r.StartedAt, Missing: r.Missing, Walls: spec.Walls.Hash(), Tree: spec.Tree, Spec: r.Spec}, nil
}

// List implements sandbox.Driver.
func (d *Driver) List(ctx context.Context) ([]sandbox.Info, error) {
	// A server lists its boxes before anything else. A ready boot that cannot be removed is not a
	// box, and Prewarm will return the error.
	_ = d.sweepReady(ctx)
	d.deadOnce.Do(func() { d.sweepDead(ctx) })
	before := d.probed()
	records, err := d.Dir.List()
	if err != nil {
		return nil, err
	}
	after := d.probed()
	out := make([]sandbox.Info, 0, len(records))
	for _, r := range records {
		if before[r.Box] || after[r.Box] {
			continue
		}
		i, err := d.info(r)
		if err != nil {
			return nil, err
		}
		if i.Running {
			d.guard(r)
		}
		out = append(out, i)
	}
	return out, nil
}

// Freeze implements sandbox.Freezer.
func (d *Driver) Freeze(ctx context.Context, box holdfast.BoxID) error {
	return d.freezer(ctx, box, (*boxCgroup).freeze)
}

// Thaw implements sandbox.Freezer.
func (d *Driver) Thaw(ctx context.Context, box holdfast.BoxID) error {
	return d.freezer(ctx, box, (*boxCgroup).thaw)
}

func (d *Driver) freezer(ctx context.Context, box holdfast.BoxID, do func(*boxCgroup, context.Context) error) error {
	unlock, err := d.Locks.Lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	cg, err := d.runningCgroup(box)
	if err != nil {
		return err
	}
	if !cg.canFreeze() {
		why := cmp.Or(d.cg().lack["freezer"], "it was started without a cgroup")
		return holdfast.Errorf(holdfast.KindUnavailable, op, "box %s can be neither frozen nor thawed: %s", holdfast.Quote(string(box)), why).
			WithHint("%s", fixCgroup())
	}
	if err := do(&cg, ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot freeze or thaw box %s: %w", holdfast.Quote(string(box)), err)
	}
	return nil
}

// started is a box that this driver started: its process and its cgroup.
type started struct {
	*boxproc.Proc
	cg boxCgroup
}

// runningCgroup returns the cgroup of a running box, or not_found if the box does not run.
func (d *Driver) runningCgroup(box holdfast.BoxID) (boxCgroup, error) {
	d.mu.Lock()
	p, ok := d.procs[box]
	d.mu.Unlock()
	if ok {
		select {
		case <-p.Done():
		default:
			return p.cg, nil // do not check the record and the process: that would take as long as the freeze itself
		}
	}
	r, err := d.Running(box)
	return cgroupOf(r), err
}

// clear ends a box and removes what belongs to it except its directories, record, socket and log. It leaves a box of
// another data directory as it is. It may be called again. The box's lock is held.
func (d *Driver) clear(ctx context.Context, box holdfast.BoxID) error {
	r, err := d.Dir.Read(box)
	switch holdfast.KindOf(err) {
	case holdfast.KindNotFound:
		return nil
	case holdfast.KindBusy:
		return err
	}
	cg := cgroupOf(r)
	if err != nil {
		// An unreadable record cannot be trusted. But the path of the box's cgroup is known
		// without it, and every process in there belongs to this box.
		cg = d.cg().plan(box)
		if err := d.endNameless(ctx); err != nil {
			return err
		}
	}
	if foreign, err := d.Dir.Foreign(r); err != nil || foreign {
		return err // a foreign box, with its cgroup, belongs to another data directory
	}
	p, err := d.Dir.Find(r)
	switch {
	case err == nil:
		defer p.Close()
		// Kill and thaw the cgroup before waiting for boxd: its death ends the pid namespace, which
		// waits for every process in it, also for frozen ones.
		if err := p.Signal(9); err != nil {
			return err
		}
		cg.kill()
		if err := p.Wait(ctx); err != nil {
			return err
		}
	case !holdfast.IsKind(err, holdfast.KindNotFound):
		return err
	}
	if err := cg.remove(ctx); err != nil {
		return err
	}
	d.forget(box)
	d.watch.forget(box)
	if w, ok := wallsOf(r); ok {
		unlock, err := d.lockTree(ctx, r)
		if err != nil {
			return err
		}
		defer unlock()
		others, err := d.otherWalls(box)
		if err == nil {
			err = w.removePlaceholders(others)
		}
		if err != nil {
			return err
		}
		// The box no longer owns placeholders: files that appear at their paths later must not be removed.
		delete(r.Extra, extraWalls)
		return d.Dir.Write(r)
	}
	return nil
}

// forget closes the handle of a box's process; the box has ended.
func (d *Driver) forget(box holdfast.BoxID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.procs[box]; ok {
		p.Close()
		delete(d.procs, box)
	}
}

// extraCgroup is the key of the cgroup in a record.
const extraCgroup = "cgroup"

// cgroupOf returns the cgroup that is stored in a record; without directories if the record has none, or a broken
// value.
func cgroupOf(r boxproc.Record) boxCgroup {
	c, _ := extra[boxCgroup](r, extraCgroup)
	return c
}

// extra returns a value of a record; ok is false if it is missing or broken.
func extra[T any](r boxproc.Record, key string) (v T, ok bool) {
	text := r.Extra[key]
	return v, text != "" && json.Unmarshal([]byte(text), &v) == nil
}

// withExtra returns the record with a value stored under a key of Extra, as JSON.
func withExtra(r boxproc.Record, key string, v any) (boxproc.Record, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, op, "cannot encode the field %s for the record of a box: %w", key, err)
	}
	if r.Extra == nil {
		r.Extra = map[string]string{}
	}
	r.Extra[key] = string(b)
	return r, nil
}

func (d *Driver) info(r boxproc.Record) (sandbox.Info, error) {
	i, err := d.Info(r)
	if i.Running {
		cg := cgroupOf(r)
		i.Frozen, _ = cg.frozen()
		if w, ok := wallsOf(r); ok {
			i.Walls = w.Hash
		}
		i.Tree, _ = extra[string](r, extraTree)
	}
	return i, err
}

// programFile returns the open boxd program, and extracts and opens it at the first call. It is executed by descriptor,
// because a mapped uid cannot reach it by its path in a 0700 directory.
func (d *Driver) programFile() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.program != nil {
		return d.program, nil
	}
	program, err := d.cfg.Boxd()
	if err != nil {
		return nil, err
	}
	path, err := program.Extract(d.Dir.Path())
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the boxd program: %w", err)
	}
	d.program = f
	return f, nil
}
