//go:build linux

package boxd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/files"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestMain does what cmd/boxd does first: children inherit neither a descriptor nor an
// ignored signal. nohup ignores SIGHUP, and a shell without job control ignores SIGINT
// for what it starts in the background.
func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT)
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/holdfast-run/holdfast/internal/boxd.(*OSHands).reap"))
}

// hands are shared: one process has one reaper.
var hands = sync.OnceValue(func() *boxd.OSHands {
	h, err := boxd.NewOSHands(boxd.NewPlainForker())
	if err != nil {
		panic(err)
	}
	return h
})

// box is a boxd in this process, with real processes.
type box struct {
	t   testing.TB
	srv *boxd.Server
	l   *net.UnixListener
	cfg boxd.Config
	end chan error
}

type option func(*boxd.Config)

func startBox(t testing.TB, opts ...option) *box {
	t.Helper()
	cfg := boxd.Config{Config: wire.Config{
		Box: "w-test", State: t.TempDir(), Workspace: t.TempDir(), Home: t.TempDir(), Tmp: t.TempDir(),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "BASE=1"},
	}, Hands: hands()}
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.Files == nil {
		cfg.Files = files.New(files.Config{Workspace: cfg.Workspace, Home: cfg.Home})
	}
	return startOn(t, cfg)
}

func startOn(t testing.TB, cfg boxd.Config) *box {
	t.Helper()
	srv, err := boxd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@boxd-test-%d-%s", os.Getpid(), newID(t)), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, srv: srv, l: l, cfg: cfg, end: make(chan error, 1)}
	go func() { b.end <- srv.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		srv.Stop(0, "test ended")
		select {
		case <-b.end:
		case <-time.After(30 * time.Second):
			t.Error("Serve did not return after Stop")
		}
	})
	return b
}

func (b *box) pipe() net.Conn {
	b.t.Helper()
	c, err := net.Dial("unix", b.l.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *box) dial(token uint64) *sandbox.Box {
	b.t.Helper()
	c, err := sandbox.Dial(b.t.Context(), "w-test", b.pipe(), token, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

func newID(t testing.TB) holdfast.CallID {
	t.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return holdfast.CallID(id)
}

func newCall(t testing.TB) sandbox.Call { return sandbox.Call{ID: newID(t)} }

func sh(script string) wire.ExecRequest { return wire.ExecRequest{Shell: script} }

// run runs a request to its end.
func run(t testing.TB, b *sandbox.Box, req wire.ExecRequest, opt sandbox.ExecOptions) (wire.ExecResult, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	if opt.Stdout == nil {
		opt.Stdout = &out
	}
	if opt.Stderr == nil {
		opt.Stderr = &errs
	}
	res, err := b.Exec(t.Context(), newCall(t), req, opt)
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	return res, out.String(), errs.String()
}

// eventually polls until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func wantKind(t testing.TB, err error, kind holdfast.Kind, parts ...string) {
	t.Helper()
	if holdfast.KindOf(err) != kind {
		t.Fatalf("error %v has kind %q, want %q", err, holdfast.KindOf(err), kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }
