package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// WS-R36.
func TestPoolReconnectsToTheSameBox(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	defer h.Release()
	boot := h.Box.Boot()
	r.forget()
	r.d.DropConnection("w-a")
	<-h.Box.Done()
	// Without being asked.
	r.eventually("a new pipe", func() bool { b := r.p.Live("w-a"); return b != nil && b != h.Box })
	again := r.get("a")
	defer again.Release()
	if again.Box == h.Box || again.Box.Boot() != boot {
		t.Fatalf("boot %s after %s", again.Box.Boot(), boot)
	}
	r.equal("events", r.told(), "")
	if strings.Contains(r.calls(), "ensure") {
		t.Fatalf("calls %s", r.calls())
	}
}

func TestPoolTellsALostBoxUnasked(t *testing.T) {
	r := newRig(t, nil)
	boot := r.use("a")
	r.forget()
	r.d.KillBox("w-a")
	r.eventually("the loss", func() bool { return r.told() == "lost" })
	ev := r.events()[0]
	if ev.Ended.Boot != boot || ev.Ended.Reason == "" {
		t.Fatalf("event %+v", ev)
	}
	if again := r.use("a"); again == boot {
		t.Fatal("the dead box is used again")
	}
	r.equal("events", r.told(), "lost started")
}

// A box that is lost while it is held keeps its place for the holder.
func TestPoolLostBoxUnderAHold(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxBoxes = 1 })
	h := r.get("a")
	r.d.KillBox("w-a")
	<-h.Box.Done()
	r.eventually("the loss", func() bool { return r.told() == "started lost" })
	_, err := r.p.Acquire(context.Background(), r.spec("b"), false, nil)
	r.kind(err, holdfast.KindUnavailable)
	again := r.get("a")
	h.Release()
	r.equal("output", r.sh(again.Box, "echo hi"), "hi\n")
	again.Release()
	r.use("b")
}

// A box that is lost while nobody holds it leaves its place free.
func TestPoolLostBoxGivesItsPlaceBack(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxBoxes = 1 })
	r.use("a")
	r.d.KillBox("w-a")
	r.eventually("the loss", func() bool { return r.told() == "started lost" })
	b := r.get("b")
	defer b.Release()
	r.equal("events", r.told(), "started lost started")
}

// WS-R64.
func TestPoolRetriesOnceWhenNothingRan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.d.HangHello(1)
		r.use("a")
		r.equal("calls", r.calls(), "ensure w-a, connect w-a, stop w-a, ensure w-a, connect w-a, told box.started w-a")
		r.d.HangHello(2)
		_, err := r.p.Acquire(context.Background(), r.spec("b"), false, nil)
		r.kind(err, holdfast.KindUnavailable)
		if r.running("b") {
			t.Fatal("a box that does not answer is left")
		}
		r.use("b")
	})
}

func TestPoolRetriesAFailedConnect(t *testing.T) {
	r := newRig(t, nil)
	r.d.FailConnect(1, holdfast.Errorf(holdfast.KindUnavailable, "driver", "no descriptor"))
	r.use("a")
	r.d.FailConnect(2, holdfast.Errorf(holdfast.KindUnavailable, "driver", "no descriptor"))
	_, err := r.p.Acquire(context.Background(), r.spec("b"), false, nil)
	r.kind(err, holdfast.KindUnavailable)
	if !strings.Contains(err.Error(), "no descriptor") {
		t.Fatalf("error %v", err)
	}
}

// A box in which something may run is stopped only after it failed to answer twice.
//
// WS-R63.
func TestPoolHungBoxIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		drop := func() (boot string) {
			h := r.get("a")
			defer h.Release()
			r.d.DropConnection("w-a")
			<-h.Box.Done()
			return h.Box.Boot()
		}
		boot := r.use("a")
		r.d.HangHello(1)
		r.equal("boot before", drop(), boot)
		r.equal("boot after one silence", r.use("a"), boot)
		r.forget()
		r.d.HangHello(20)
		drop()
		_, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
		r.kind(err, holdfast.KindUnavailable)
		r.d.HangHello(0)
		if again := r.use("a"); again == boot {
			t.Fatal("the silent box is used again")
		}
		r.equal("events", r.told(), "lost started")
	})
}

func TestPoolAcquireEndsWithContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.d.HangHello(1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := r.p.Acquire(ctx, r.spec("a"), false, nil)
		r.kind(err, holdfast.KindUnavailable)
		if took := time.Since(began); took != time.Second {
			t.Fatalf("took %s", took)
		}
		// What was started is found, and told, by the next one.
		r.use("a")
		r.equal("events", r.told(), "started")
		if strings.Count(r.calls(), "ensure") != 1 {
			t.Fatalf("calls %s", r.calls())
		}
	})
}

func TestPoolWaiterEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.d.HangHello(1)
		first := make(chan error, 1)
		go func() {
			h, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
			if err == nil {
				h.Release()
			}
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := r.p.Acquire(ctx, r.spec("a"), false, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		if err := <-first; err != nil {
			t.Fatal(err)
		}
	})
}

// WS-R61.
func TestPoolAdopts(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	boot := h.Box.Boot()
	call := r.call()
	ctx, cancel := context.WithCancel(context.Background())
	done, started := make(chan struct{}), make(chan struct{})
	req := wire.ExecRequest{Shell: "echo x >> ran; while [ ! -f go ]; do sleep 0.01; done; echo done"}
	go func() {
		defer close(done)
		_, _ = h.Box.Exec(ctx, call, req, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
	}()
	<-started
	r.next(false)
	cancel()
	<-done
	b := r.p.Live("w-a")
	if b == nil || b.Boot() != boot {
		t.Fatalf("not adopted: %v", b)
	}
	again := r.get("a")
	defer again.Release()
	if _, err := again.Box.Write(context.Background(), r.call(), wire.WriteRequest{Path: "go"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := again.Box.Exec(context.Background(), call, req, sandbox.ExecOptions{})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%+v, %v", res, err)
	}
	r.equal("times it ran", r.sh(again.Box, "cat ran"), "x\n")
	r.equal("events", r.told(), "")
}

// HZ-10: an adopted box is thawed, then gets the hello, then its gate is opened.
func TestHZ10_AdoptsAFrozenBox(t *testing.T) {
	r := newRig(t, nil)
	boot := r.use("a")
	if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
		t.Fatal(err)
	}
	r.next(false)
	r.equal("calls", r.calls(), "thaw gate-closed w-a, connect w-a")
	if r.d.Gated("w-a") || r.isFrozen("a") {
		t.Fatal("frozen or gated after its adoption")
	}
	h := r.get("a")
	defer h.Release()
	r.equal("boot", h.Box.Boot(), boot)
	r.equal("output", r.sh(h.Box, "echo hi"), "hi\n")
}

func TestPoolStartMayStopInstead(t *testing.T) {
	r := newRig(t, nil)
	boot := r.use("a")
	r.next(true)
	if r.running("a") {
		t.Fatal("it runs")
	}
	r.equal("events", r.told(), "stopped")
	if again := r.use("a"); again == boot {
		t.Fatal("the same life")
	}
}

// WS-R67.
func TestPoolSweepsOrphans(t *testing.T) {
	r := newRig(t, nil)
	r.use("a")
	r.use("b")
	r.use("c")
	if err := r.p.Stop(context.Background(), "w-c", "test", 0); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Close(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	r.forget()
	r.cfg.Token++
	r.make()
	err := r.p.Start(context.Background(), false, func(id holdfast.BoxID) bool { return id == "w-a" })
	if err != nil {
		t.Fatal(err)
	}
	infos, err := r.d.List(context.Background())
	if err != nil || len(infos) != 1 || infos[0].Box != "w-a" || !infos[0].Running {
		t.Fatalf("left %+v, %v", infos, err)
	}
	r.equal("events", r.told(), "")
}

// HZ-3: a server with an older token gets no box.
func TestHZ3_StaleServerDoesNotStart(t *testing.T) {
	r := newRig(t, nil)
	boot := r.use("a")
	none := pool.New(pool.Config{Driver: r.d.Reopen()})
	err := none.Start(context.Background(), false, func(holdfast.BoxID) bool { return true })
	r.kind(err, holdfast.KindInvalid)
	r.next(false)
	// The former server goes on with its token.
	old := pool.New(pool.Config{Driver: r.d, Token: 1})
	err = old.Start(context.Background(), false, func(holdfast.BoxID) bool { return true })
	r.kind(err, holdfast.KindConflict)
	_, err = old.Acquire(context.Background(), r.spec("a"), false, nil)
	r.kind(err, holdfast.KindUnavailable)
	r.equal("boot", r.use("a"), boot)
}

func TestPoolStaleAcquireIsConflictAndKillsNothing(t *testing.T) {
	r := newRig(t, nil)
	boot := r.use("a")
	b, err := r.d.Connect(context.Background(), "w-a")
	if err != nil {
		t.Fatal(err)
	}
	newer, err := sandbox.Dial(context.Background(), "w-a", b, 99, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	r.eventually("a conflict", func() bool {
		h, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
		if err == nil {
			h.Release()
		}
		return holdfast.IsKind(err, holdfast.KindConflict)
	})
	r.equal("boot", newer.Boot(), boot)
	r.equal("output", r.sh(newer, "echo hi"), "hi\n")
	r.equal("events", r.told(), "started")
}

func TestPoolRemove(t *testing.T) {
	r := newRig(t, nil)
	r.use("a")
	for range 2 {
		if err := r.p.Remove(context.Background(), "w-a"); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := r.d.List(context.Background())
	if err != nil || len(infos) != 0 {
		t.Fatalf("left %+v, %v", infos, err)
	}
	r.equal("events", r.told(), "started stopped")
}

func TestPoolClosed(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxTurns = 1 })
	h, err := r.p.Acquire(context.Background(), r.spec("a"), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	queued, waiter := make(chan int, 1), make(chan error, 1)
	go func() {
		_, err := r.p.Acquire(context.Background(), r.spec("a"), true, func(pos int) { queued <- pos })
		waiter <- err
	}()
	<-queued
	for range 2 {
		if err := r.p.Close(context.Background(), true); err != nil {
			t.Fatal(err)
		}
	}
	r.kind(<-waiter, holdfast.KindUnavailable)
	<-h.Box.Done()
	h.Release()
	_, err = r.p.Acquire(context.Background(), r.spec("a"), false, nil)
	r.kind(err, holdfast.KindUnavailable)
	r.kind(r.p.Stop(context.Background(), "w-a", "x", 0), holdfast.KindUnavailable)
	if r.running("a") {
		t.Fatal("it runs")
	}
	r.equal("events", r.told(), "started stopped")
}

func TestPoolBeforeItsStart(t *testing.T) {
	p := pool.New(pool.Config{Driver: mem.New(mem.Config{}), Token: 1})
	if _, err := p.Acquire(t.Context(), sandbox.Spec{Box: "w-a", Dir: t.TempDir()}, false, nil); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("acquire before the start: %v", err)
	}
	if err := p.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

// warm is a Prewarmer that records how many ready boots it is asked for.
type warm struct {
	*mem.Driver
	mu   sync.Mutex
	asks []int
}

func (w *warm) Prewarm(_ context.Context, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks = append(w.asks, n)
	return nil
}

func (w *warm) Reserve(s sandbox.Spec) (sandbox.Spec, bool) {
	s.BoxdUID = 7
	return s, true
}

func TestPoolPrewarms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := &warm{Driver: mem.New(mem.Config{})}
		p := pool.New(pool.Config{Driver: w, Token: 1, Prewarm: 2})
		if err := p.Start(t.Context(), false, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s, ok := p.Reserve(sandbox.Spec{Box: "w-a", Dir: t.TempDir()})
		if !ok || s.BoxdUID != 7 {
			t.Errorf("reserved %+v, %v", s, ok)
		}
		h, err := p.Acquire(t.Context(), s, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Release()
		synctest.Wait()
		if err := p.Close(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(w.asks); got != "[2 2 0]" {
			t.Fatalf("asked for %s", got)
		}
	})
}

// TestPoolUnderFire: many users claim boxes, there are few places, and boxes and pipes die.
// There must be no error but the ones that were provoked, never more boxes than places, for
// each box a start before any other event, and no place or claim lost in the end.
func TestPoolUnderFire(t *testing.T) {
	const boxes, places, users, rounds = 6, 3, 8, 40
	r := newRig(t, func(c *pool.Config) {
		c.MaxBoxes, c.MaxTurns, c.FreezeAfter, c.StopAfter = places, 2, time.Millisecond, 5*time.Millisecond
	})
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(u)))
			for range rounds {
				fire(r, rnd, fmt.Sprintf("%c", 'a'+rnd.IntN(boxes)))
			}
		})
	}
	wg.Wait()
	alive := map[holdfast.BoxID]bool{}
	for i, ev := range r.events() {
		switch ev.Type {
		case holdfast.EventBoxStarted:
			if alive[ev.Box] {
				t.Fatalf("event %d: %s started while it ran", i, ev.Box)
			}
			alive[ev.Box] = true
		case holdfast.EventBoxStopped, holdfast.EventBoxLost:
			alive[ev.Box] = false
		}
	}
	// All places can be had, once what still is told as running has ended.
	r.eventually("all places", func() bool {
		var hs []*pool.Hold
		for i := range places {
			h, err := r.p.Acquire(context.Background(), r.spec(fmt.Sprintf("z%d", i)), true, nil)
			if err == nil {
				hs = append(hs, h)
			}
		}
		for _, h := range hs {
			h.Release()
		}
		return len(hs) == places
	})
}

func fire(r *rig, rnd *rand.Rand, name string) {
	h, err := r.p.Acquire(context.Background(), r.spec(name), rnd.IntN(2) == 0, nil)
	if err != nil {
		if !holdfast.IsKind(err, holdfast.KindUnavailable) {
			r.Error(err)
		}
		return
	}
	defer h.Release()
	infos, err := r.d.List(context.Background())
	running := 0
	for _, info := range infos {
		if info.Running {
			running++
		}
	}
	if err != nil || running > 3 {
		r.Errorf("%d boxes run, %v", running, err)
	}
	switch rnd.IntN(12) {
	case 0:
		r.d.KillBox(holdfast.BoxID("w-" + name))
		return
	case 1:
		r.d.DropConnection(holdfast.BoxID("w-" + name))
		return
	}
	res, err := h.Box.Exec(context.Background(), r.call(), wire.ExecRequest{Argv: []string{"true"}}, sandbox.ExecOptions{})
	if err != nil && !holdfast.IsKind(err, holdfast.KindUnavailable) || err == nil && res.Class != holdfast.ExitOK && res.Class != holdfast.ExitCanceled {
		r.Errorf("exec: %+v, %v", res, err)
	}
}
