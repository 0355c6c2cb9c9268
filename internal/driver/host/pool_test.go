//go:build linux

package host_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/host"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

// told collects what a pool tells.
type told struct {
	mu  sync.Mutex
	evs []pool.Event
}

func (e *told) add(ev pool.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.evs = append(e.evs, ev)
}

func (e *told) types() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, ev := range e.evs {
		out = append(out, strings.TrimPrefix(string(ev.Type), "box."))
	}
	return strings.Join(out, " ")
}

func newPool(t *testing.T, d *host.Driver, token uint64, stopAfter time.Duration) (*pool.Pool, *told) {
	t.Helper()
	var e told
	p := pool.New(pool.Config{Driver: d, Token: token, FreezeAfter: time.Millisecond, StopAfter: stopAfter, OnEvent: e.add})
	if err := p.Start(t.Context(), false, func(holdfast.BoxID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
	return p, &e
}

func acquire(t *testing.T, p *pool.Pool, s sandbox.Spec) *pool.Hold {
	t.Helper()
	h, err := p.Acquire(t.Context(), s, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The pool over real processes: a box outlives its server, is adopted, is lost
// when its boxd is killed, and is stopped when nobody uses it.
func TestPoolOverRealProcesses(t *testing.T) {
	home := dataDir(t)
	s := spec(home, "a")
	first := open(t, home)
	p, events := newPool(t, first, 1, -1)
	h := acquire(t, p, s)
	sh(t, h.Box, "echo kept > file")
	boot := h.Box.Boot()
	h.Release()
	if err := p.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := events.types(); got != "started" {
		t.Fatalf("events of the first server: %s", got)
	}

	d := open(t, home)
	p, events = newPool(t, d, 2, -1)
	h = acquire(t, p, s)
	if h.Box.Boot() != boot {
		t.Fatal("not adopted")
	}
	info, err := d.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the loss", func() bool { return events.types() == "lost" })
	h.Release()
	h = acquire(t, p, s)
	if h.Box.Boot() == boot || sh(t, h.Box, "cat file") != "kept" {
		t.Fatal("not a new life on the same files")
	}
	if info, err = d.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	h.Release()
	if err := p.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}

	p, events = newPool(t, d, 3, 20*time.Millisecond)
	testkit.Eventually(t, "the idle stop", func() bool { return events.types() == "stopped" })
	// The pool first asks boxd to end. The driver keeps no record of a boxd that ends before
	// the driver stops it.
	testkit.Eventually(t, "the end of the box", func() bool {
		list, err := p.List(t.Context())
		gone := errors.Is(syscall.Kill(info.PID, 0), syscall.ESRCH)
		return err == nil && gone && (len(list) == 0 || len(list) == 1 && list[0].State == holdfast.BoxStopped)
	})
	if err := p.Remove(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	if left := testkit.Glob(home, "run/host/*.sock"); len(left) != 0 {
		t.Fatalf("sockets left: %v", left)
	}
}
