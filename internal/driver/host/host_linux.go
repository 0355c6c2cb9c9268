package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Driver implements sandbox.Driver. Make one with New, and Close it.
type Driver struct {
	boxproc.Boxes
	cfg  Config
	work sync.WaitGroup
	// done is closed by Close.
	done chan struct{}

	mu     sync.Mutex
	closed bool
	// watched holds the boxds that have a goroutine waiting for their end.
	watched map[holdfast.BoxID]*boxproc.Proc
}

var _ sandbox.Driver = (*Driver)(nil)

// New opens the driver's directory. The first call of List starts to watch the boxes that a
// former server left, and ends what is left of those that died. New fails with invalid for a bad
// configuration.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	dir, err := boxproc.Open(filepath.Join(cfg.Home, "run", "host"), cfg.Owner)
	if err != nil {
		return nil, err
	}
	if _, err := dir.Sweep(0); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, done: make(chan struct{}), watched: map[holdfast.BoxID]*boxproc.Proc{}}
	d.Dir, d.Clear = dir, d.clear
	return d, nil
}

// Close ends the driver's own goroutines; boxes keep running. It may be called again.
func (d *Driver) Close() error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.done)
	}
	d.mu.Unlock()
	d.work.Wait()
	return nil
}

// Name returns "host".
func (d *Driver) Name() string { return "host" }

// Probe reports which protections this driver does not have.
func (d *Driver) Probe(context.Context) sandbox.Probe {
	p := sandbox.Probe{Driver: d.Name(), Usable: true, Capabilities: []sandbox.Capability{
		{Name: "isolation", Note: true, Detail: "none: " + Meaning},
		{Name: "memory-limit", Note: true, Detail: "not enforced on the host"},
		{Name: "pids-limit", Note: true, Detail: "not enforced on the host"},
		{Name: "cpu-limit", Note: true, Detail: "not enforced on the host"},
		{Name: "freeze", Note: true, Detail: "a box on the host is never frozen"},
		{Name: "environment", OK: true, Detail: "PATH USER LANG LC_* TERM TZ and what the session sets; HOME and TMPDIR are the session's"},
	}}
	if _, err := d.cfg.Boxd(); err != nil {
		p.Usable, p.Reason, p.Hint = false, err.Error(), holdfast.HintOf(err)
	}
	return p
}

// Ensure implements sandbox.Driver.
func (d *Driver) Ensure(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := boxproc.CheckSpec(spec); err != nil {
		return sandbox.Info{}, err
	}
	if !spec.Walls.Empty() {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the host driver cannot enforce path rules by mounts")
	}
	if spec.Tree != "" {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the host driver cannot give box %s the directory %s read-only", holdfast.Quote(string(spec.Box)), holdfast.Quote(spec.Tree)).
			WithHint("give the session no tree (mount: workspace), or use --driver local")
	}
	if spec.Shared {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the host driver cannot share box %s among sessions: it cannot give them separate homes", holdfast.Quote(string(spec.Box))).
			WithHint("give each session a box of its own, or use --driver local")
	}
	if spec.RootTree != nil {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the host driver cannot run box %s in a directory that belongs to root", holdfast.Quote(string(spec.Box)))
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
		d.watch(ctx, r)
		return d.Info(r)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	return d.start(ctx, spec)
}

func (d *Driver) start(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	own, err := ownerOf(spec, os.Getuid())
	if err != nil {
		return sandbox.Info{}, err
	}
	program, err := d.cfg.Boxd()
	if err != nil {
		return sandbox.Info{}, err
	}
	path, err := program.Extract(d.Dir.Path())
	if err != nil {
		return sandbox.Info{}, err
	}
	c, err := directories(spec, own)
	if err != nil {
		return sandbox.Info{}, err
	}
	mark, err := d.mark(spec.Box)
	if err != nil {
		return sandbox.Info{}, err
	}
	c.Env = environment(d.cfg.Environ, c.Home, c.Tmp, mark, own)
	l := boxproc.Launch{
		Path: path, Argv: []string{"boxd", string(spec.Box)}, Env: []string{}, Dir: "/", Now: d.cfg.Now(),
		Prepare: func(_ *boxproc.Record, h *boxproc.Handover) error { h.Config = c; return nil },
	}
	if own != nil {
		if own.shown = d.cfg.Shown; spec.Agent != "" {
			own.shown = append(slices.Clone(own.shown), spec.Agent)
		}
		if l.Program, err = os.Open(path); err != nil {
			return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the boxd program: %w", err)
		}
		defer l.Program.Close()
		l.Thread, l.Attr, l.Placed = own.enter, own.credential(), own.verify
	}
	b, r, err := d.Dir.Start(ctx, boxproc.Record{Box: spec.Box, Spec: spec.Hash(), Missing: missing(own)}, l)
	if err != nil {
		return sandbox.Info{}, err
	}
	b.Close()
	d.watch(ctx, r)
	return d.Info(r)
}

// directories makes the directories of a box and returns the configuration of boxd that names them. If own is not
// nil, they belong to that user.
func directories(spec sandbox.Spec, own *owner) (wire.Config, error) {
	c := wire.Config{
		Box: string(spec.Box), State: filepath.Join(spec.Dir, "state"), Workspace: spec.Workspace,
		Home: filepath.Join(spec.Dir, "home"), Tmp: filepath.Join(spec.Dir, "tmp"), OrphanAfter: spec.OrphanAfter, SpoolBytes: spec.SpoolBytes, Umask: spec.Umask,
	}
	if c.Workspace == "" {
		c.Workspace = filepath.Join(spec.Dir, "workspace")
	}
	if own != nil {
		// The directory "state" belongs to the boxd of an isolated box of the same session, which has another uid.
		c.State = filepath.Join(spec.Dir, "state.host")
		return c, own.directories(spec, c.Workspace, c.Home, c.State, c.Tmp)
	}
	for _, dir := range []string{c.Workspace, c.Home, c.State, c.Tmp} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return c, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make a directory of the box: %w", err)
		}
	}
	return c, nil
}

// mark returns the environment entry, NAME=value, that all processes of a box have. It contains
// the inode of the driver's directory, so that boxes of a copied directory have another entry.
func (d *Driver) mark(box holdfast.BoxID) (string, error) {
	dir, err := d.Dir.Mark()
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, op, "cannot identify the driver's directory: %w", err)
	}
	return sandbox.Mark + "=" + dir + "." + boxproc.Key(box), nil
}

// watch waits for the end of a box's boxd and then ends the processes that it leaves: without a
// pid namespace the kernel does not end them.
func (d *Driver) watch(ctx context.Context, r boxproc.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.watched[r.Box]; d.closed || p != nil && p.PID() == r.PID {
		return
	}
	p, err := d.Dir.Find(r)
	if err != nil {
		return
	}
	d.watched[r.Box] = p
	// The goroutine must continue after the call that starts it has returned.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.work.Go(func() {
		defer cancel()
		defer p.Close()
		select {
		case <-p.Done():
		case <-d.done:
			return
		}
		stop := d.whenClosed(cancel)
		defer stop()
		d.mu.Lock()
		if d.watched[r.Box] == p {
			delete(d.watched, r.Box)
		}
		d.mu.Unlock()
		// If sweep fails, List, Ensure and Stop try it again.
		_ = d.sweep(ctx, r.Box)
	})
}

// whenClosed calls fn when the driver is closed, unless stop is called before.
func (d *Driver) whenClosed(fn func()) (stop func()) {
	end := make(chan struct{})
	d.work.Go(func() {
		select {
		case <-d.done:
			fn()
		case <-end:
		}
	})
	return func() { close(end) }
}

// sweep kills the processes that are left of a box whose boxd has ended, and deletes its record.
func (d *Driver) sweep(ctx context.Context, box holdfast.BoxID) error {
	unlock, err := d.Locks.Lock(ctx, box)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.Dir.Read(box)
	if err != nil || r.PID == 0 {
		return err
	}
	if alive, err := d.Dir.Alive(r); err != nil || alive {
		return err
	}
	if err := d.killMarked(ctx, r); err != nil {
		return err
	}
	return d.Dir.Delete(box)
}

// clear ends boxd and every process below it; the box's lock is held. KillTree stops boxd first,
// so that boxd starts nothing more and stays the parent by which the box's processes are found.
func (d *Driver) clear(ctx context.Context, box holdfast.BoxID) error {
	r, err := d.Dir.Read(box)
	if holdfast.IsKind(err, holdfast.KindBusy) {
		return err
	}
	if err != nil {
		r = boxproc.Record{Box: box}
	}
	p, err := d.Dir.Find(r)
	if err == nil {
		defer p.Close()
		err = p.KillTree(ctx)
	}
	if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		return err
	}
	return d.killMarked(ctx, r)
}

// killMarked kills all processes with the mark of a box, unless the box belongs to another data
// directory.
func (d *Driver) killMarked(ctx context.Context, r boxproc.Record) error {
	if foreign, err := d.Dir.Foreign(r); err != nil || foreign {
		return err
	}
	mark, err := d.mark(r.Box)
	if err != nil {
		return err
	}
	return boxproc.KillBearers(ctx, mark)
}

// List implements sandbox.Driver.
func (d *Driver) List(ctx context.Context) ([]sandbox.Info, error) {
	records, err := d.Dir.List()
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.Info, 0, len(records))
	for _, r := range records {
		i, err := d.Info(r)
		switch {
		case err != nil:
			return nil, err
		case i.Running:
			d.watch(ctx, r)
		case r.PID != 0:
			// List returns the boxes even if sweep fails: Ensure and Stop report the failure.
			_ = d.sweep(ctx, r.Box)
		}
		out = append(out, i)
	}
	return out, nil
}

// environment returns the environment with which every process of a box starts.
func environment(server []string, home, tmp, mark string, own *owner) []string {
	out := []string{"HOME=" + home, "TMPDIR=" + tmp, mark}
	if own != nil {
		if name := own.name(); name != "" {
			out = append(out, "USER="+name)
		}
	}
	path := false
	for _, kv := range server {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || !sandbox.Inherits(name) || name == "USER" && own != nil {
			continue
		}
		out = append(out, kv)
		path = path || name == "PATH"
	}
	if !path {
		out = append(out, "PATH=/usr/local/bin:/usr/bin:/bin")
	}
	return out
}

// missing lists the protections that a box of this driver does not have, for Info and box.started.
func missing(own *owner) []string {
	meaning := Meaning
	if own != nil {
		meaning = fmt.Sprintf("tools can do everything uid %d can do, the owner of the workspace", own.uid)
	}
	return []string{"isolation: none: " + meaning, "limits: none are enforced on the host"}
}
