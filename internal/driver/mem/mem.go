// Package mem is a driver for tests: it runs the real boxd core in this process, in a private
// directory, with imitated programs.
//
// It owns the imitated machine: processes that are goroutines and run scripts in the interpreter of
// mvdan.cc/sh, signals, a freezer, a few programs, and faults that tests inject. Only tests and suites import
// it. Invariant: no operating-system process is started, and what runs in a box
// reaches no file outside the box's workspace, home and tmp.
//
// It works inside testing/synctest bubbles, with one limit: while a call runs, boxd reads a real
// pipe, which does not count as durably blocked, so the bubble's clock does not advance until the
// call has ended.
package mem

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/files"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Config configures a Driver. The zero value is ready.
type Config struct {
	// MaxHeld is how many unreleased calls a box holds at most; 0 means boxd's default.
	MaxHeld int
}

// Driver implements sandbox.Driver and sandbox.Freezer. Make one with New.
type Driver struct {
	cfg Config
	w   *world
}

// world is the state that outlives a server: a Driver shares it with those that Reopen returns.
type world struct {
	mu     sync.Mutex
	boxes  map[holdfast.BoxID]*box
	faults faults
}

// box is one box; its lock serialises the calls for it.
type box struct {
	id   holdfast.BoxID
	lock chan struct{}

	// Guarded by world.mu.
	life *life
	root string
}

// life is one run of a box, from its start to its end, with all state of that run.
type life struct {
	m         *machine
	srv       *boxd.Server
	l         *listener
	startedAt time.Time
	state     string
	// walls and spec are the hashes of the walls and of the rest of the spec that the box was started with.
	walls, spec string
	// ended is closed when the box's boxd server has returned.
	ended chan struct{}
	// dying is set by a kill, under the listener's lock, and closed when the kill is complete.
	dying chan struct{}
}

// New makes a driver with a world of its own.
func New(cfg Config) *Driver {
	return &Driver{cfg: cfg, w: &world{boxes: map[holdfast.BoxID]*box{}}}
}

// Reopen returns a new driver with the same boxes and the same faults, as a server has one after a restart.
func (d *Driver) Reopen() *Driver { return &Driver{cfg: d.cfg, w: d.w} }

// Name returns "mem".
func (d *Driver) Name() string { return "mem" }

// Probe always reports the driver as usable: it needs nothing from the machine.
func (d *Driver) Probe(context.Context) sandbox.Probe {
	return sandbox.Probe{
		Driver: d.Name(), Usable: true, Isolates: true,
		Capabilities: []sandbox.Capability{
			{Name: "processes", OK: true, Detail: "imitated in memory: no process of the system is ever started"},
			{Name: "freeze", OK: true, Detail: "imitated processes stop between two steps"},
			{Name: "terminal", Note: true, Detail: "not imitated; use --driver local or host"},
			{Name: "memory-limit", Note: true, Detail: "not imitated"},
		},
	}
}

// Ensure starts the box's boxd core, unless it is running.
func (d *Driver) Ensure(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	const op = "mem.ensure"
	if _, err := holdfast.Parse[holdfast.BoxID](string(spec.Box)); err != nil {
		return sandbox.Info{}, err
	}
	if !filepath.IsAbs(spec.Dir) {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindInvalid, op, "the directory %s of the box is not an absolute path", holdfast.Quote(spec.Dir))
	}
	if spec.Tree != "" {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the mem driver cannot give box %s the directory %s read-only: it has no mounts", holdfast.Quote(string(spec.Box)), holdfast.Quote(spec.Tree)).
			WithHint("give the session no tree (mount: workspace)")
	}
	if spec.Shared {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the mem driver cannot share box %s among sessions: it cannot give them separate homes", holdfast.Quote(string(spec.Box))).
			WithHint("give each session a box of its own")
	}
	if spec.RootTree != nil {
		return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the mem driver cannot run box %s in a directory that belongs to root", holdfast.Quote(string(spec.Box)))
	}
	b := d.w.box(spec.Box, true)
	if err := b.acquire(ctx); err != nil {
		return sandbox.Info{}, err
	}
	defer b.release()
	if d.w.alive(b) == nil {
		d.w.settle(b)
		if err := d.w.faults.take(&d.w.faults.ensure); err != nil {
			return sandbox.Info{}, err
		}
		if err := d.start(ctx, b, spec); err != nil {
			return sandbox.Info{}, err
		}
	}
	return d.w.info(b), nil
}

func (d *Driver) start(ctx context.Context, b *box, spec sandbox.Spec) error {
	workspace := spec.Workspace
	if workspace == "" {
		workspace = filepath.Join(spec.Dir, "workspace")
	}
	home, state := filepath.Join(spec.Dir, "home"), filepath.Join(spec.Dir, "state")
	root := filepath.Join(spec.Dir, "root")
	if err := makeRoot(root, workspace, home, state); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "mem.ensure", "cannot make the directories of the box: %w", err)
	}
	// A box outlives the call that starts it.
	bctx := context.WithoutCancel(ctx)
	m := newMachine(bctx, root)
	lf := &life{m: m, l: newListener(), startedAt: time.Now(), state: state, walls: spec.Walls.Hash(), spec: spec.Hash(), ended: make(chan struct{})}
	fs := files.New(files.Config{Workspace: "/workspace", Home: "/home/agent", Base: root})
	srv, err := boxd.New(boxd.Config{
		Config: wire.Config{
			Box: string(spec.Box), State: state, Workspace: "/workspace", Home: "/home/agent", Tmp: "/tmp",
			Env: []string{
				"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent", "USER=agent", "LC_CTYPE=C.UTF-8", "TMPDIR=/tmp",
			},
			MaxHeld: d.cfg.MaxHeld, OrphanAfter: spec.OrphanAfter, SpoolBytes: spec.SpoolBytes,
		},
		Hands:   m,
		Files:   fs,
		Scoped:  func(s wire.Scope) boxd.FileOps { return fs.Within(s) },
		Watch:   fs.Watch,
		InForce: []string{"imitated processes"},
		Missing: []string{"memory-limit: not imitated", "terminal: not imitated"},
	})
	if err != nil {
		_ = os.RemoveAll(root)
		return err
	}
	lf.srv = srv
	d.w.mu.Lock()
	b.life, b.root = lf, root
	d.w.mu.Unlock()
	go func() {
		defer close(lf.ended)
		// Serve returns after a stop; this listener cannot fail.
		_ = srv.Serve(bctx, lf.l)
		m.powerOff()
	}()
	return nil
}

// makeRoot builds the directory that stands for "/": links to the persistent directories, and an
// empty tmp for this life.
func makeRoot(root, workspace, home, state string) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	for _, dir := range []string{workspace, home, state, filepath.Join(root, "tmp"), filepath.Join(root, "home")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Symlink(workspace, filepath.Join(root, "workspace")),
		os.Symlink(home, filepath.Join(root, "home", "agent")),
	)
}

// Connect opens a connection to the running box.
func (d *Driver) Connect(ctx context.Context, id holdfast.BoxID) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "mem.connect", "gave up connecting to the box: %w", err)
	}
	lf := d.w.alive(d.w.box(id, false))
	if lf == nil {
		return nil, notRunning(id)
	}
	if err := d.w.faults.take(&d.w.faults.connect); err != nil {
		return nil, err
	}
	conn, err := lf.l.dial(d.w.faults.take(&d.w.faults.hangs) != nil)
	if err != nil {
		return nil, notRunning(id)
	}
	return conn, nil
}

func notRunning(id holdfast.BoxID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "mem", "box %s is not running", holdfast.Quote(string(id)))
}

// Stop ends the box; its directories and saved outcomes stay.
func (d *Driver) Stop(ctx context.Context, id holdfast.BoxID) error {
	b := d.w.box(id, false)
	if b == nil {
		return nil
	}
	if err := b.acquire(ctx); err != nil {
		return err
	}
	defer b.release()
	return d.stop(b)
}

func (d *Driver) stop(b *box) error {
	if lf := d.w.alive(b); lf != nil {
		lf.m.powerOff()
		lf.srv.Stop(0, "the driver stopped the box")
		<-lf.ended
	}
	d.w.settle(b)
	d.w.mu.Lock()
	root := b.root
	b.life = nil
	d.w.mu.Unlock()
	if root == "" {
		return nil
	}
	if err := os.RemoveAll(root); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "mem.stop", "cannot remove the directories of the box: %w", err)
	}
	return nil
}

// Remove stops the box and forgets it.
func (d *Driver) Remove(ctx context.Context, id holdfast.BoxID) error {
	if err := d.Stop(ctx, id); err != nil {
		return err
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if b := d.w.boxes[id]; b != nil && b.life == nil {
		delete(d.w.boxes, id)
	}
	return nil
}

// List returns the state of each box of this world that was started and not removed.
func (d *Driver) List(ctx context.Context) ([]sandbox.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "mem.list", "gave up listing boxes: %w", err)
	}
	d.w.mu.Lock()
	var all []*box
	for _, b := range d.w.boxes {
		if b.root != "" {
			all = append(all, b)
		}
	}
	d.w.mu.Unlock()
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	out := make([]sandbox.Info, 0, len(all))
	for _, b := range all {
		out = append(out, d.w.info(b))
	}
	return out, nil
}

// Freeze stops every imitated process between two steps.
func (d *Driver) Freeze(ctx context.Context, id holdfast.BoxID) error {
	lf := d.w.alive(d.w.box(id, false))
	if lf == nil {
		return notRunning(id)
	}
	select {
	case <-lf.m.ice.freeze():
		return nil
	case <-ctx.Done():
		lf.m.ice.thaw()
		return holdfast.Errorf(holdfast.KindUnavailable, "mem.freeze", "gave up waiting for the freeze of the box: %w", ctx.Err())
	}
}

// Thaw lets the imitated processes of a frozen box continue.
func (d *Driver) Thaw(_ context.Context, id holdfast.BoxID) error {
	lf := d.w.alive(d.w.box(id, false))
	if lf == nil {
		return notRunning(id)
	}
	lf.m.ice.thaw()
	return nil
}

// box returns the box with that id. If it is unknown, box makes it if create is set, or else returns nil.
func (w *world) box(id holdfast.BoxID, create bool) *box {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[id]
	if b == nil && create {
		b = &box{id: id, lock: make(chan struct{}, 1)}
		w.boxes[id] = b
	}
	return b
}

func (b *box) acquire(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		select {
		case b.lock <- struct{}{}:
			return nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "mem", "gave up waiting until another driver call on the same box ends: %w", err)
}

func (b *box) release() { <-b.lock }

// alive returns the current life of the box, nil if the box does not run.
func (w *world) alive(b *box) *life {
	if b == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.life == nil || b.life.l.isClosed() {
		return nil
	}
	return b.life
}

// settle waits until the last run of the box has ended, if the box was killed or stopped by itself.
func (w *world) settle(b *box) {
	w.mu.Lock()
	lf := b.life
	w.mu.Unlock()
	if lf != nil {
		lf.over()
	}
}

func (w *world) info(b *box) sandbox.Info {
	info := sandbox.Info{Box: b.id, Missing: []string{"memory-limit: not imitated"}}
	if lf := w.alive(b); lf != nil {
		info.Running, info.Frozen = true, lf.m.ice.frozen()
		info.Boot, info.StartedAt, info.Walls, info.Spec = lf.srv.Boot(), lf.startedAt, lf.walls, lf.spec
	}
	return info
}

// listener passes the boxd ends of net.Pipes to Accept.
type listener struct {
	conns  chan net.Conn
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed chan struct{}
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), open: map[net.Conn]struct{}{}, closed: make(chan struct{})}
}

// dial makes a pipe to boxd; if hang is true, nobody reads or writes at its other end.
func (l *listener) dial(hang bool) (net.Conn, error) {
	near, far := net.Pipe()
	l.mu.Lock()
	if l.isClosed() {
		l.mu.Unlock()
		return nil, net.ErrClosed
	}
	l.open[near] = struct{}{}
	l.mu.Unlock()
	tracked := &pipeEnd{Conn: near, l: l}
	if hang {
		return tracked, nil
	}
	select {
	case l.conns <- far:
		return tracked, nil
	case <-l.closed:
		_ = tracked.Close()
		return nil, net.ErrClosed
	}
}

// drop closes every open pipe.
func (l *listener) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
	}
	clear(l.open)
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: it ends Accept. Open pipes stay open.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isClosed() {
		close(l.closed)
	}
	return nil
}

func (l *listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "mem", Net: "unix"} }

// pipeEnd is a client's end of a pipe; it removes itself from the listener when it is closed.
type pipeEnd struct {
	net.Conn
	l *listener
}

// Close closes the pipe.
func (p *pipeEnd) Close() error {
	p.l.mu.Lock()
	delete(p.l.open, p.Conn)
	p.l.mu.Unlock()
	return p.Conn.Close()
}

// stateFiles returns the content of a state directory, so that restore can put it back after a kill.
func stateFiles(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[e.Name()] = b
	}
	return out, nil
}
