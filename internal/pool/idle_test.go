package pool_test

import (
	"context"
	"errors"
	"slices"
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

func (r *rig) isFrozen(name string) bool {
	infos, err := r.d.List(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	for _, info := range infos {
		if info.Box == holdfast.BoxID("w-"+name) {
			return info.Frozen
		}
	}
	return false
}

// TestPoolFreezesThenStopsIdleBoxes: after one minute and after fifteen, by default.
//
// DOC-35, WS-R36, WS-R49, WS-R55, WS-R57, WS-R58.
func TestPoolFreezesThenStopsIdleBoxes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config) { c.FreezeAfter, c.StopAfter = 0, 0 }) // the defaults
		h := r.get("a")
		// Held for an hour: neither.
		pass(time.Hour)
		r.equal("events while held", r.told(), "started")
		h.Release()
		pass(59 * time.Second)
		r.equal("events before its time", r.told(), "started")
		pass(2 * time.Second)
		r.equal("events after a minute", r.told(), "started frozen")
		if !r.isFrozen("a") {
			t.Fatal("not frozen")
		}
		pass(14*time.Minute + time.Second)
		r.equal("events after fifteen", r.told(), "started frozen stopped")
		if r.running("a") || r.p.Live("w-a") != nil {
			t.Fatal("it runs")
		}
		pass(10 * time.Hour)
		r.equal("events later", r.told(), "started frozen stopped")
		r.use("a")
		r.equal("events after the next use", r.told(), "started frozen stopped started")
	})
}

func TestPoolUsePutsIdleTimesOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config) { c.FreezeAfter, c.StopAfter = time.Minute, 3*time.Minute })
		for range 20 {
			r.use("a")
			pass(50 * time.Second)
		}
		r.equal("events", r.told(), "started")
		pass(time.Minute)
		r.use("a")
		pass(150 * time.Second)
		r.use("a")
		r.equal("events", r.told(), "started frozen frozen")
		pass(4 * time.Minute)
		r.equal("events", r.told(), "started frozen frozen frozen stopped")
	})
}

func TestPoolNeverMeansNever(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		boot := r.use("a")
		pass(1000 * time.Hour)
		r.equal("events", r.told(), "started")
		r.equal("boot", r.use("a"), boot)
	})
}

// HZ-10: a box is frozen only after the event of the freeze is emitted and boxd's gate is closed. The box is thawed before
// the gate opens.
func TestHZ10_FreezeOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		boot := r.use("a")
		r.forget()
		r.seen = func(ev pool.Event) {
			if ev.Type != holdfast.EventBoxFrozen {
				return
			}
			synctest.Wait() // all else goes on as far as it can
			if !r.d.Gated("w-a") || r.isFrozen("a") {
				t.Error("the freeze did not wait for its event")
			}
		}
		if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
			t.Fatal(err)
		}
		r.equal("calls", r.calls(), "told box.frozen w-a, freeze gate-closed w-a")
		r.forget()
		h := r.get("a")
		defer h.Release()
		r.equal("calls", r.calls(), "thaw gate-closed w-a")
		if r.d.Gated("w-a") || h.Box.Boot() != boot {
			t.Fatal("the gate is closed, or the box another one")
		}
		r.equal("output", r.sh(h.Box, "echo hi"), "hi\n")
		r.kind(r.p.Freeze(context.Background(), "w-a"), holdfast.KindBusy)
		r.kind(r.p.Freeze(context.Background(), "w-b"), holdfast.KindNotFound)
	})
}

// plain is a driver without extra powers.
type plain struct{ sandbox.Driver }

// icy is a Freezer whose probe says that it cannot freeze on this machine.
type icy struct {
	*mem.Driver
	probes int
}

func (i *icy) Probe(ctx context.Context) sandbox.Probe {
	i.probes++
	p := i.Driver.Probe(ctx)
	for n := range p.Capabilities {
		if p.Capabilities[n].Name == "freeze" {
			p.Capabilities[n].OK = false
		}
	}
	return p
}

func TestPoolWithoutFreezer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &icy{Driver: mem.New(mem.Config{})}
		for _, driver := range []sandbox.Driver{plain{d.Driver}, d} {
			var mu sync.Mutex
			var told []string
			p := pool.New(pool.Config{Driver: driver, Token: 1, OnEvent: func(ev pool.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, string(ev.Type))
			}})
			ctx := t.Context()
			if err := p.Start(ctx, false, nil); err != nil {
				t.Fatal(err)
			}
			h, err := p.Acquire(ctx, sandbox.Spec{Box: "w-a", Dir: t.TempDir()}, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.Release()
			if err := p.Freeze(ctx, "w-a"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Fatalf("freeze: %v", err)
			}
			pass(20 * time.Minute)
			mu.Lock()
			got := strings.Join(told, " ")
			mu.Unlock()
			if got != "box.started box.stopped" {
				t.Errorf("events %s", got)
			}
			if err := p.Close(ctx, true); err != nil {
				t.Fatal(err)
			}
			if err := d.Remove(ctx, "w-a"); err != nil {
				t.Fatal(err)
			}
		}
		if d.probes != 1 {
			t.Errorf("probed %d times", d.probes)
		}
	})
}

// HZ-15: a box in which only an agent between its turns runs is frozen, stopped and evicted as if
// nothing ran in it. The event does not list the agent among the processes that ended, but it
// lists processes that the agent left behind.
func TestHZ15_PoolAgentsAtRestAreIdle(t *testing.T) {
	var resting holdfast.CallID
	r := newRig(t, func(c *pool.Config) {
		c.MaxBoxes = 1
		c.Resting = func(_ context.Context, box holdfast.BoxID) []holdfast.CallID {
			if box == "w-a" {
				return []holdfast.CallID{resting}
			}
			return nil
		}
	})
	h := r.get("a")
	ctx, cancel := context.WithCancel(context.Background())
	call := r.call()
	resting = call.ID
	done, started := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := h.Box.Exec(ctx, call, wire.ExecRequest{Shell: "sleep 900 & sleep 1000"}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
		done <- err
	}()
	<-started
	r.eventually("what it leaves", func() bool {
		list, err := h.Box.Processes(context.Background())
		return err == nil && slices.ContainsFunc(list, func(pr wire.Process) bool { return !pr.Leader && pr.Name == "sleep" })
	})
	cancel()
	<-done
	r.kind(r.p.Freeze(context.Background(), "w-a"), holdfast.KindBusy) // it is held
	h.Release()
	if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
		t.Fatal(err)
	}
	r.get("b").Release()
	names := func(e holdfast.BoxEnded) (out []string) {
		for _, p := range e.Processes {
			_, name, _ := strings.Cut(p, " ")
			out = append(out, name)
		}
		return out
	}
	if ev := r.events(); len(ev) < 3 || ev[2].Type != holdfast.EventBoxStopped || !slices.Equal(names(ev[2].Ended), []string{"sleep"}) {
		t.Errorf("%+v", ev)
	}
}

// A call that nobody holds any more (its reader left, its server died) is
// neither frozen nor stopped nor evicted.
//
// WS-R57.
func TestPoolSparesRunningCalls(t *testing.T) {
	r := newRig(t, func(c *pool.Config) {
		c.MaxBoxes, c.FreezeAfter, c.StopAfter = 1, 10*time.Millisecond, 20*time.Millisecond
	})
	h := r.get("a")
	ctx, cancel := context.WithCancel(context.Background())
	call := r.call()
	req := wire.ExecRequest{Shell: "echo begun; while [ ! -f go ]; do sleep 0.01; done"}
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		_, err := h.Box.Exec(ctx, call, req, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
		done <- err
	}()
	<-started
	cancel()
	if err := <-done; err == nil {
		t.Fatal("the exec did not notice its context")
	}
	h.Release()
	_, err := r.p.Acquire(context.Background(), r.spec("b"), false, nil)
	r.kind(err, holdfast.KindUnavailable)
	r.kind(r.p.Freeze(context.Background(), "w-a"), holdfast.KindBusy)
	polls := 0
	r.eventually("many idle times", func() bool { polls++; return polls > 100 })
	r.equal("events", r.told(), "started")
	h = r.get("a")
	if _, err := h.Box.Write(context.Background(), r.call(), wire.WriteRequest{Path: "go"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := h.Box.Exec(context.Background(), call, req, sandbox.ExecOptions{})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%+v, %v", res, err)
	}
	h.Release()
	r.eventually("the idle stop", func() bool { return strings.HasSuffix(r.told(), "stopped") && !r.running("a") })
}

func TestASH28_PoolEvictsIdleLongestFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config) { c.MaxBoxes = 3 })
		for _, name := range []string{"a", "b", "c"} {
			r.use(name)
			pass(time.Second)
		}
		r.use("a")
		r.forget()
		r.use("d")
		if r.running("b") || !r.running("a") || !r.running("c") || !r.running("d") {
			t.Fatal("not the one that was idle longest")
		}
		ev := r.events()
		if len(ev) != 2 || ev[0].Type != holdfast.EventBoxStopped || ev[0].Box != "w-b" ||
			!strings.Contains(ev[0].Ended.Reason, "evicted") || ev[1].Box != "w-d" {
			t.Fatalf("events %+v", ev)
		}
	})
}

func TestASH28_PoolNeverEvictsHeldBoxes(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxBoxes = 2 })
	a, b := r.get("a"), r.get("b")
	_, err := r.p.Acquire(context.Background(), r.spec("c"), false, nil)
	r.kind(err, holdfast.KindUnavailable)
	if !strings.Contains(holdfast.HintOf(err), "retry") {
		t.Fatalf("hint %q", holdfast.HintOf(err))
	}
	if r.running("c") {
		t.Fatal("started over the limit")
	}
	r.equal("output", r.sh(a.Box, "echo hi"), "hi\n")
	a.Release()
	c := r.get("c")
	if r.running("a") || !r.running("b") {
		t.Fatal("evicted the wrong one")
	}
	b.Release()
	c.Release()
}

// TestASH28_PoolTurnsWaitInLine: when all boxes are in use, turns wait for a place in order and
// learn their position; when one gives up the next moves up, and nobody else gets past them.
func TestASH28_PoolTurnsWaitInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config) { c.MaxBoxes = 1 })
		a := r.get("a")
		wait := func(ctx context.Context, name string) (<-chan error, *[]int) {
			done, told := make(chan error, 1), new([]int)
			go func() {
				h, err := r.p.Acquire(ctx, r.spec(name), true, func(n int) { *told = append(*told, n) })
				if err == nil {
					h.Release()
				}
				done <- err
			}()
			synctest.Wait()
			return done, told
		}
		ctx, giveUp := context.WithCancel(context.Background())
		b, toldB := wait(ctx, "b")
		c, toldC := wait(context.Background(), "c")
		if r.p.Full("w-a") != nil || !errors.Is(r.p.Full("w-d"), holdfast.ErrFull) {
			t.Errorf("full: %v, %v", r.p.Full("w-a"), r.p.Full("w-d"))
		}
		giveUp()
		r.kind(<-b, holdfast.KindUnavailable)
		synctest.Wait()
		if !slices.Equal(*toldB, []int{1}) || !slices.Equal(*toldC, []int{2, 1}) {
			t.Errorf("told %v and %v", *toldB, *toldC)
		}
		a.Release()
		if err := <-c; err != nil || !r.running("c") || r.running("a") {
			t.Errorf("the one that waited: %v", err)
		}
		if err := r.p.Full("w-d"); err != nil {
			t.Errorf("an idle box has no place for another: %v", err)
		}
	})
}

// A frozen box is evicted as any other, and its processes are named.
func TestHZ15_PoolEvictsFrozenBox(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxBoxes = 1 })
	h := r.get("a")
	r.sh(h.Box, "sleep 600 & echo started")
	r.eventually("a named process", func() bool {
		list, err := h.Box.Processes(context.Background())
		return err == nil && len(list) == 1 && list[0].Name == "sleep"
	})
	h.Release()
	if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
		t.Fatal(err)
	}
	r.forget()
	r.use("b")
	ev := r.events()
	if len(ev) != 2 || ev[0].Box != "w-a" || len(ev[0].Ended.Processes) != 1 || !strings.Contains(ev[0].Ended.Processes[0], "sleep") {
		t.Fatalf("events %+v", ev)
	}
}

func TestHZ15_PoolStopNamesProcessesBeforeTheAct(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	defer h.Release()
	r.sh(h.Box, "sleep 600 & sleep 700 & echo started")
	boot := h.Box.Boot()
	r.forget()
	r.seen = func(pool.Event) {
		if !r.running("a") {
			t.Error("told after the act")
		}
	}
	if err := r.p.Stop(context.Background(), "w-a", "because", time.Second); err != nil {
		t.Fatal(err)
	}
	ev := r.events()
	if len(ev) != 1 || ev[0].Type != holdfast.EventBoxStopped || ev[0].Ended.Boot != boot ||
		ev[0].Ended.Reason != "because" || len(ev[0].Ended.Processes) != 2 {
		t.Fatalf("events %+v", ev)
	}
	<-h.Box.Done()
	if r.running("a") {
		t.Fatal("it runs")
	}
	r.seen = nil
	if r.use("a") == boot {
		t.Fatal("the stopped box is used again")
	}
	// Of what does not run nothing is told.
	r.forget()
	for range 2 {
		if err := r.p.Stop(context.Background(), "w-none", "because", 0); err != nil {
			t.Fatal(err)
		}
	}
	r.equal("events", r.told(), "")
}

func TestPoolTellsOutOfMemory(t *testing.T) {
	r := newRig(t, nil)
	for round := range 2 {
		h := r.get("a")
		done := make(chan struct{})
		started := make(chan struct{})
		go func() {
			defer close(done)
			_, err := h.Box.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: "sleep 600"},
				sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
			if err != nil {
				t.Error(err)
			}
		}()
		<-started
		if !r.d.KillForMemory("w-a") {
			t.Fatal("nothing to kill")
		}
		<-done
		h.Release()
		r.eventually("the event", func() bool { return strings.Count(r.told(), "oom") == round+1 })
	}
	for _, ev := range r.events() {
		if ev.Type == holdfast.EventBoxOOM && (ev.Ended.Boot == "" || !strings.Contains(ev.Ended.Reason, "1 process")) {
			t.Errorf("event %+v", ev)
		}
	}
}
