package pool_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

// beats leaves a process in the box of a claim that appends to a file, and returns the file's size.
func (r *rig) beats(h *pool.Hold, name string) (size func() int64) {
	r.Helper()
	r.sh(h.Box, "(while true; do echo x >> beat; sleep 0.001; done) &")
	size = func() int64 {
		info, err := os.Stat(filepath.Join(r.dir, name, "workspace", "beat"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	r.eventually("a heartbeat", func() bool { return size() > 2 })
	return size
}

// pause waits between two looks, in real time.
func pause(d time.Duration) { <-time.After(d) }

// stands reports whether a file did not grow between two looks.
func stands(size func() int64) bool {
	before := size()
	pause(50 * time.Millisecond)
	return size() == before
}

// HZ-10: the event and the gate come before the freeze; fn finds a box that stands still,
// which runs again before its gate opens.
func TestHZ10_StillOrder(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	size := r.beats(h, "a")
	h.Release()
	r.forget()
	r.seen = func(ev pool.Event) {
		if r.isFrozen("a") {
			t.Error("the event came after the freeze")
		}
	}
	boom := errors.New("boom")
	frozen, err := r.p.Still(t.Context(), "w-a", time.Minute, nil, func(context.Context) error {
		if !r.d.Gated("w-a") || !r.isFrozen("a") || !stands(size) {
			t.Error("the box does not stand still")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.did = append(r.did, "fn")
		return boom
	})
	if !frozen || !errors.Is(err, boom) {
		t.Fatalf("frozen %v, %v", frozen, err)
	}
	r.equal("calls", r.calls(), "told box.frozen w-a, freeze gate-closed w-a, fn, thaw gate-closed w-a")
	if ev := r.events()[0]; ev.Ended.Reason != "snapshot" || ev.Ended.Boot == "" {
		t.Errorf("event %+v", ev)
	}
	if r.d.Gated("w-a") || r.isFrozen("a") {
		t.Fatal("the box was not thawed")
	}
	before := size()
	r.eventually("a heartbeat after the thaw", func() bool { return size() > before })
}

// The event and the gate do not wait until the caller is ready, the freeze does; a caller that withdraws leaves the box
// as it was.
func TestStillWaitsUntilReady(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	size := r.beats(h, "a")
	h.Release()
	for _, withdrawn := range []bool{true, false} {
		r.forget()
		ctx, cancel := context.WithCancel(t.Context())
		ready, ran := make(chan struct{}), false
		done := make(chan error, 1)
		go func() {
			_, err := r.p.Still(ctx, "w-a", time.Minute, ready, func(context.Context) error { ran = true; return nil })
			done <- err
		}()
		r.eventually("the gate", func() bool { return r.d.Gated("w-a") && len(r.events()) == 1 })
		if r.isFrozen("a") {
			t.Error("the box was frozen before the caller was ready")
		}
		if withdrawn {
			cancel()
		} else {
			close(ready)
		}
		if err := <-done; (err != nil) != withdrawn || ran == withdrawn {
			t.Errorf("withdrawn %v: %v, ran %v", withdrawn, err, ran)
		}
		cancel()
		before := size()
		r.eventually("a heartbeat after that", func() bool { return size() > before })
		if r.d.Gated("w-a") || r.isFrozen("a") {
			t.Errorf("withdrawn %v: the box is not as it was", withdrawn)
		}
		r.use("a")
	}
}

// lateConn holds back what a box sends while held is full.
type lateConn struct {
	net.Conn
	held chan struct{}
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.held <- struct{}{}
	<-c.held
	return n, err
}

// A freeze that is withdrawn before boxd answered about the gate opens the gate only after that answer. Otherwise boxd
// could close the gate afterwards, and no call would start in the box any more.
func TestStillWithdrawnBeforeTheGateCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		held := make(chan struct{}, 1)
		r.pipe = func(c net.Conn) net.Conn { return &lateConn{c, held} }
		r.use("a")
		r.forget()
		synctest.Wait()
		held <- struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := r.p.Still(ctx, "w-a", time.Minute, make(chan struct{}), func(context.Context) error { return nil })
			done <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		before := r.calls()
		<-held
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the freeze was not withdrawn: %v", err)
		}
		synctest.Wait()
		r.equal("calls before the answer", before, "told box.frozen w-a")
		r.equal("calls after the answer", r.calls(), "told box.frozen w-a, thaw gate-closed w-a")
		if r.d.Gated("w-a") || r.isFrozen("a") {
			t.Error("the box is not as it was")
		}
		r.use("a")
	})
}

// A freeze that would stop nothing, or another's calls, does not happen; fn runs all the same.
func TestStillWithoutAFreeze(t *testing.T) {
	r := newRig(t, nil)
	runs := func(what string, still func(context.Context, holdfast.BoxID, time.Duration, <-chan struct{}, func(context.Context) error) (bool, error), wantFrozen bool) {
		t.Helper()
		r.forget()
		ran := 0
		frozen, err := still(t.Context(), "w-a", time.Minute, nil, func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Errorf("%s: fn has no deadline", what)
			}
			ran++
			return nil
		})
		if err != nil || frozen != wantFrozen || ran != 1 {
			t.Errorf("%s: frozen %v, %v, ran %d times", what, frozen, err, ran)
		}
		if told := r.told(); told != "" != (wantFrozen && !r.isFrozen("a")) {
			t.Errorf("%s: events %q", what, told)
		}
	}
	runs("no box", r.p.Still, false)
	r.use("a")
	runs("a box", r.p.Still, true)
	own, other := r.get("a"), r.get("a")
	r.beats(own, "a")
	held := func(ctx context.Context, _ holdfast.BoxID, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (bool, error) {
		return own.Still(ctx, most, ready, fn)
	}
	runs("two claims", r.p.Still, false)
	runs("another claim", held, false)
	other.Release()
	runs("a claim", r.p.Still, false)
	runs("only the own claim", held, true)
	own.Release()
	runs("no claim", r.p.Still, true)
	if err := r.p.Freeze(t.Context(), "w-a"); err != nil {
		t.Fatal(err)
	}
	runs("a frozen box", r.p.Still, true)
	if !r.isFrozen("a") {
		t.Error("a box that was frozen before is thawed")
	}
	if err := r.p.Stop(t.Context(), "w-a", "test", 0); err != nil {
		t.Fatal(err)
	}
	runs("a stopped box", r.p.Still, false)
}

// The processes run again after the time, and new claims are served, even if fn does not return.
func TestStillEndsInTime(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	size := r.beats(h, "a")
	h.Release()
	frozen, err := r.p.Still(t.Context(), "w-a", 50*time.Millisecond, nil, func(ctx context.Context) error {
		<-ctx.Done()
		before := size()
		r.eventually("a heartbeat after the time", func() bool { return size() > before })
		// The box runs a little before its gate is open and claims are let in again.
		r.eventually("the end of the thaw", func() bool { return r.p.States()[holdfast.BoxIdle] == 1 })
		r.use("a")
		return ctx.Err()
	})
	if frozen || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("frozen %v, %v", frozen, err)
	}
}

// A claim that comes meanwhile waits for the thaw, nothing else acts on the box, and a caller that
// gave up before the box's turn does not run fn.
func TestStillHoldsTheBox(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	r.beats(h, "a")
	h.Release()
	inside, claimed, stopped := false, make(chan bool, 1), make(chan bool, 1)
	_, err := r.p.Still(t.Context(), "w-a", time.Minute, nil, func(ctx context.Context) error {
		inside = true
		defer func() { inside = false }()
		soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if _, err := r.p.Still(soon, "w-a", time.Minute, nil, func(context.Context) error { t.Error("fn ran"); return nil }); err == nil {
			t.Error("a second Still did not wait")
		}
		go func() {
			got, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
			claimed <- err == nil && !inside
			if err == nil {
				got.Release()
			}
			stopped <- r.p.Stop(context.Background(), "w-a", "test", 0) == nil && !inside
		}()
		pause(50 * time.Millisecond)
		if len(claimed) > 0 || !r.isFrozen("a") {
			t.Error("a claim did not wait")
		}
		return nil
	})
	if err != nil || !<-claimed || !<-stopped {
		t.Fatalf("%v", err)
	}
}

// stiff is a driver whose freezes fail.
type stiff struct {
	*mem.Driver
	tries int
}

func (s *stiff) Freeze(context.Context, holdfast.BoxID) error {
	s.tries++
	return errors.New("the freezer is broken")
}

func TestStillOfADriverThatCannotFreeze(t *testing.T) {
	stiff := &stiff{Driver: mem.New(mem.Config{})}
	for name, d := range map[string]sandbox.Driver{
		"no freezer": plain{mem.New(mem.Config{})}, "not on this machine": &icy{Driver: mem.New(mem.Config{})}, "fails": stiff,
	} {
		var events []string
		p := pool.New(pool.Config{Driver: d, Token: 1, FreezeAfter: -1, StopAfter: -1, OnEvent: func(ev pool.Event) { events = append(events, string(ev.Type)) }})
		if err := p.Start(t.Context(), false, func(holdfast.BoxID) bool { return true }); err != nil {
			t.Fatal(err)
		}
		r := &rig{T: t, dir: t.TempDir(), p: p}
		h := r.get("a")
		size := r.beats(h, "a")
		h.Release()
		for range 2 {
			frozen, err := p.Still(t.Context(), "w-a", time.Minute, nil, func(context.Context) error {
				before := size()
				r.eventually("a heartbeat", func() bool { return size() > before })
				return nil
			})
			if frozen || err != nil {
				t.Errorf("%s: frozen %v, %v", name, frozen, err)
			}
		}
		if told := strings.Count(strings.Join(events, " "), "frozen"); (told == 1) != (name == "fails") {
			t.Errorf("%s: events %v", name, events)
		}
		if err := p.Close(context.Background(), true); err != nil {
			t.Error(err)
		}
	}
	if stiff.tries != 1 {
		t.Errorf("%d tries of a freeze that fails", stiff.tries)
	}
}

// TestRest: a box is at rest while it does not run, and while nothing runs in it.
func TestRest(t *testing.T) {
	r := newRig(t, nil)
	rest := func(what string, want bool) sandbox.Rest {
		t.Helper()
		got, ok := r.p.Rest(t.Context(), "w-a")
		if ok != want {
			t.Fatalf("%s: at rest %v", what, ok)
		}
		return got
	}
	if rest("no box", true) != (sandbox.Rest{}) {
		t.Error("a box that does not run has a state")
	}
	h := r.get("a")
	first := rest("a fresh box", true)
	if !first.Of(h.Box) {
		t.Error("the state is of another box")
	}
	r.beats(h, "a")
	h.Release()
	rest("a process", false)
	r.d.DropConnection("w-a")
	r.eventually("another connection", func() bool { live := r.p.Live("w-a"); return live != nil && live != h.Box })
	rest("a process behind another connection", false)
	if err := r.p.Stop(t.Context(), "w-a", "test", 0); err != nil {
		t.Fatal(err)
	}
	if rest("a stopped box", true) == first {
		t.Error("a stopped box is in the state of a running one")
	}
	r.use("a")
	if rest("the next box", true) == first {
		t.Error("the next box is in the state of the last")
	}
}
