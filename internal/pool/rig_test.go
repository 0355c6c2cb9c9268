package pool_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// bubble is synctest.Test for code that uses yamux: that keeps timers in a
// sync.Pool, and one made in a bubble may not be used outside. Two collections
// empty a sync.Pool.
func bubble(t *testing.T, fn func(*testing.T)) {
	t.Helper()
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, fn)
}

// pass lets the clock of a bubble run, and waits for what the other goroutines do at its last moment.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// rig is a pool over the mem driver; it records the events of the pool and the calls of the driver.
type rig struct {
	*testing.T
	d    *mem.Driver
	p    *pool.Pool
	dir  string
	cfg  pool.Config
	mu   sync.Mutex
	evs  []pool.Event
	did  []string
	seen func(pool.Event)
	// pipe, if set, wraps each connection that the pool makes.
	pipe func(net.Conn) net.Conn
	// held, if set, is the driver's answer to Held.
	held func(holdfast.BoxID) sandbox.DiskUsage
	// older makes the driver list boxes as if an earlier release had recorded them.
	older bool
}

// watched is the driver of a rig; it records each call as "verb box".
type watched struct {
	*mem.Driver
	r *rig
}

func (w *watched) note(verb string, id holdfast.BoxID) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.did = append(w.r.did, verb+" "+string(id))
}

func (w *watched) Ensure(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	w.note("ensure", s.Box)
	return w.Driver.Ensure(ctx, s)
}

func (w *watched) List(ctx context.Context) ([]sandbox.Info, error) {
	list, err := w.Driver.List(ctx)
	for i := range list {
		if w.r.older {
			list[i].Spec = ""
		}
	}
	return list, err
}

func (w *watched) Connect(ctx context.Context, id holdfast.BoxID) (net.Conn, error) {
	w.note("connect", id)
	conn, err := w.Driver.Connect(ctx, id)
	if err == nil && w.r.pipe != nil {
		conn = w.r.pipe(conn)
	}
	return conn, err
}

func (w *watched) Stop(ctx context.Context, id holdfast.BoxID) error {
	w.note("stop", id)
	return w.Driver.Stop(ctx, id)
}

func (w *watched) Freeze(ctx context.Context, id holdfast.BoxID) error {
	gate := "open"
	if w.Gated(id) {
		gate = "closed"
	}
	w.note("freeze gate-"+gate, id)
	return w.Driver.Freeze(ctx, id)
}

func (w *watched) Thaw(ctx context.Context, id holdfast.BoxID) error {
	gate := "open"
	if w.Gated(id) {
		gate = "closed"
	}
	w.note("thaw gate-"+gate, id)
	return w.Driver.Thaw(ctx, id)
}

func (w *watched) Held(_ context.Context, id holdfast.BoxID) (sandbox.DiskUsage, error) {
	if w.r.held == nil {
		return sandbox.DiskUsage{}, nil
	}
	return w.r.held(id), nil
}

// newRig starts a pool whose boxes stay unless the test says otherwise.
func newRig(t *testing.T, change func(*pool.Config)) *rig {
	t.Helper()
	r := &rig{T: t, d: mem.New(mem.Config{}), dir: t.TempDir()}
	r.cfg = pool.Config{Token: 1, FreezeAfter: -1, StopAfter: -1}
	if change != nil {
		change(&r.cfg)
	}
	r.open(false)
	return r
}

// open makes and starts a pool, as the next server would.
func (r *rig) open(stop bool) {
	r.Helper()
	r.make()
	if err := r.p.Start(context.Background(), stop, func(holdfast.BoxID) bool { return true }); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) make() {
	cfg := r.cfg
	cfg.Driver = &watched{Driver: r.d, r: r}
	cfg.OnEvent = func(ev pool.Event) {
		r.mu.Lock()
		r.evs = append(r.evs, ev)
		r.did = append(r.did, "told "+string(ev.Type)+" "+string(ev.Box))
		seen := r.seen
		r.mu.Unlock()
		if seen != nil {
			seen(ev)
		}
	}
	p := pool.New(cfg)
	r.p = p
	r.Cleanup(func() {
		if err := p.Close(context.Background(), true); err != nil {
			r.Error(err)
		}
		r.clean()
	})
}

// clean removes the boxes of the driver, whoever started them.
func (r *rig) clean() {
	infos, err := r.d.List(context.Background())
	if err != nil {
		r.Error(err)
	}
	for _, info := range infos {
		if err := r.d.Remove(context.Background(), info.Box); err != nil {
			r.Error(err)
		}
	}
}

// next does what a restart of the server does: it closes the pool, leaves the boxes, and starts a
// pool with a higher token.
func (r *rig) next(stop bool) {
	r.Helper()
	if err := r.p.Close(context.Background(), false); err != nil {
		r.Fatal(err)
	}
	r.forget()
	r.d = r.d.Reopen()
	r.cfg.Token++
	r.open(stop)
}

func (r *rig) spec(name string) sandbox.Spec {
	return sandbox.Spec{Box: holdfast.BoxID("w-" + name), Dir: filepath.Join(r.dir, name)}
}

func (r *rig) get(name string) *pool.Hold {
	r.Helper()
	h, err := r.p.Acquire(context.Background(), r.spec(name), false, nil)
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// use acquires and releases.
func (r *rig) use(name string) (boot string) {
	r.Helper()
	h := r.get(name)
	defer h.Release()
	return h.Box.Boot()
}

func (r *rig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evs, r.did = nil, nil
}

func (r *rig) events() []pool.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]pool.Event(nil), r.evs...)
}

// told lists the types of the events so far, without "box.".
func (r *rig) told() string {
	var out []string
	for _, ev := range r.events() {
		out = append(out, strings.TrimPrefix(string(ev.Type), "box."))
	}
	return strings.Join(out, " ")
}

func (r *rig) calls() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.did, ", ")
}

func (r *rig) equal(what, got, want string) {
	r.Helper()
	if got != want {
		r.Fatalf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func (r *rig) kind(err error, want holdfast.Kind) {
	r.Helper()
	if !holdfast.IsKind(err, want) {
		r.Fatalf("error %v of kind %q, want %q", err, holdfast.KindOf(err), want)
	}
}

func (r *rig) eventually(what string, cond func() bool) {
	r.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			r.Fatalf("not in 30 s: %s\nevents %s\ncalls %s", what, r.told(), r.calls())
		}
		<-tick.C
	}
}

func (r *rig) running(name string) bool {
	infos, err := r.d.List(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	for _, info := range infos {
		if info.Box == holdfast.BoxID("w-"+name) {
			return info.Running
		}
	}
	return false
}

func (r *rig) call() sandbox.Call {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		r.Fatal(err)
	}
	return sandbox.Call{ID: holdfast.CallID(id)}
}

func (r *rig) sh(b *sandbox.Box, script string) string {
	r.Helper()
	var out bytes.Buffer
	res, err := b.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: script}, sandbox.ExecOptions{Stdout: &out})
	if err != nil || res.Class != holdfast.ExitOK {
		r.Fatalf("%s: %+v, %v", script, res, err)
	}
	return out.String()
}
