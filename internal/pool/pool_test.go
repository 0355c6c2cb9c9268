package pool_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// WS-R35, WS-R37.
func TestPoolStartsLazilyAndShares(t *testing.T) {
	r := newRig(t, nil)
	if r.calls() != "" || r.p.Live("w-a") != nil {
		t.Fatalf("before the first use: %s", r.calls())
	}
	first, second := r.get("a"), r.get("a")
	if first.Box != second.Box || r.p.Live("w-a") != first.Box {
		t.Fatal("two connections to one box")
	}
	r.equal("output", r.sh(first.Box, "echo hi"), "hi\n")
	first.Release()
	first.Release()
	r.equal("output", r.sh(second.Box, "echo hi"), "hi\n")
	second.Release()
	ev := r.events()
	if len(ev) != 1 || ev[0].Started.Boot != second.Box.Boot() || ev[0].Started.Driver != "mem" ||
		len(ev[0].Started.InForce) == 0 || len(ev[0].Started.Missing) != 2 {
		t.Fatalf("events %+v", ev)
	}
}

func TestPoolConcurrentAcquiresStartOne(t *testing.T) {
	r := newRig(t, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			h, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
			if err != nil {
				t.Error(err)
				return
			}
			h.Release()
		})
	}
	wg.Wait()
	r.equal("driver calls", r.calls(), "ensure w-a, connect w-a, told box.started w-a")
}

func TestPoolHotPathDoesNoIO(t *testing.T) {
	r := newRig(t, nil)
	r.use("a")
	r.forget()
	for range 1000 {
		r.use("a")
	}
	r.equal("driver calls", r.calls(), "")
}

func BenchmarkPoolAcquire(b *testing.B) {
	t := &testing.T{}
	r := &rig{T: t, d: mem.New(mem.Config{}), dir: b.TempDir()}
	p := pool.New(pool.Config{Driver: r.d, Token: 1})
	if err := p.Start(b.Context(), false, nil); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background(), true) }()
	spec := r.spec("a")
	b.ReportAllocs()
	for b.Loop() {
		h, err := p.Acquire(b.Context(), spec, true, nil)
		if err != nil {
			b.Fatal(err)
		}
		h.Release()
	}
}

// WS-R50.
func TestPoolTurnsQueueInOrder(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxTurns = 2 })
	take := func() *pool.Hold {
		h, err := r.p.Acquire(context.Background(), r.spec("a"), true, func(int) { t.Error("a free place queues") })
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first, second := take(), take()
	type arrival struct {
		n int
		h *pool.Hold
	}
	got := make(chan arrival, 3)
	var mu sync.Mutex
	told := map[int][]int{}
	for n := 1; n <= 3; n++ {
		go func() {
			h, err := r.p.Acquire(context.Background(), r.spec("a"), true, func(pos int) {
				mu.Lock()
				defer mu.Unlock()
				told[n] = append(told[n], pos)
			})
			if err != nil {
				t.Error(err)
			}
			got <- arrival{n, h}
		}()
		// The next one comes when this one stands in the queue.
		r.eventually("its place in the queue", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(told[n]) == 1
		})
	}
	list, err := r.p.List(context.Background())
	if err != nil || len(list) != 1 || list[0].Queued != 3 || list[0].Calls != 2 || list[0].State != holdfast.BoxRunning {
		t.Fatalf("list %+v, %v", list, err)
	}
	// exec, files and terminal are not counted.
	r.use("a")
	second.Release()
	a := <-got
	first.Release()
	b := <-got
	a.h.Release()
	c := <-got
	if a.n != 1 || b.n != 2 || c.n != 3 {
		t.Fatalf("order %d %d %d", a.n, b.n, c.n)
	}
	b.h.Release()
	c.h.Release()
	mu.Lock()
	defer mu.Unlock()
	for n, positions := range told {
		for i, pos := range positions {
			if i == 0 && pos != n || i > 0 && pos >= positions[i-1] {
				t.Errorf("turn %d was told positions %v", n, positions)
			}
		}
	}
}

func TestPoolQueuedTurnMayLeave(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxTurns = 1 })
	h, err := r.p.Acquire(context.Background(), r.spec("a"), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	left, stayed := make(chan error, 1), make(chan error, 1)
	queue := make(chan int, 10)
	go func() {
		_, err := r.p.Acquire(ctx, r.spec("a"), true, func(pos int) { queue <- pos })
		left <- err
	}()
	if pos := <-queue; pos != 1 {
		t.Fatalf("position %d", pos)
	}
	positions := make(chan int, 10)
	go func() {
		h, err := r.p.Acquire(context.Background(), r.spec("a"), true, func(pos int) { positions <- pos })
		if err == nil {
			h.Release()
		}
		stayed <- err
	}()
	if pos := <-positions; pos != 2 {
		t.Fatalf("position %d", pos)
	}
	cancel()
	err = <-left
	r.kind(err, holdfast.KindUnavailable)
	if ctx.Err() == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Fatalf("error %v", err)
	}
	if pos := <-positions; pos != 1 {
		t.Fatalf("position %d after the first left", pos)
	}
	h.Release()
	if err := <-stayed; err != nil {
		t.Fatal(err)
	}
	// Every place is back.
	h, err = r.p.Acquire(context.Background(), r.spec("a"), true, func(int) { t.Error("a place is lost") })
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
}

func TestPoolFailedStartGivesTurnAndSlotBack(t *testing.T) {
	r := newRig(t, func(c *pool.Config) { c.MaxTurns, c.MaxBoxes = 1, 1 })
	why := holdfast.Errorf(holdfast.KindUnavailable, "driver", "no namespaces").WithHint("as root")
	r.d.FailEnsure(1, why)
	_, err := r.p.Acquire(context.Background(), r.spec("a"), true, nil)
	r.kind(err, holdfast.KindUnavailable)
	if !strings.Contains(err.Error(), "no namespaces") || holdfast.HintOf(err) != "as root" {
		t.Fatalf("error %v, hint %q", err, holdfast.HintOf(err))
	}
	h, err := r.p.Acquire(context.Background(), r.spec("b"), true, func(int) { t.Error("queued") })
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	h, err = r.p.Acquire(context.Background(), r.spec("a"), true, func(int) { t.Error("queued") })
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
}

func TestPoolWaitersShareAFailure(t *testing.T) {
	r := newRig(t, nil)
	r.d.FailEnsure(100, holdfast.Errorf(holdfast.KindUnavailable, "driver", "no namespaces"))
	const n = 30
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for range n {
		wg.Go(func() {
			<-begin
			_, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
			if !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Error(err)
			}
		})
	}
	close(begin)
	wg.Wait()
	if starts := strings.Count(r.calls(), "ensure"); starts > n {
		t.Fatalf("%d starts for %d waiters", starts, n)
	}
	r.d.FailEnsure(0, nil)
	r.use("a")
}

// WS-R41, WS-R59.
func TestPoolListsStates(t *testing.T) {
	r := newRig(t, nil)
	states := func() string {
		list, err := r.p.List(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range list {
			if c.Driver != "mem" {
				t.Errorf("driver %q", c.Driver)
			}
			out = append(out, fmt.Sprintf("%s:%s:%d", c.ID, c.State, c.Calls))
		}
		return strings.Join(out, " ")
	}
	r.equal("empty", states(), "")
	h := r.get("a")
	r.equal("held", states(), "w-a:running:1")
	h.Release()
	r.equal("released", states(), "w-a:idle:0")
	if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
		t.Fatal(err)
	}
	r.equal("frozen", states(), "w-a:frozen:0")
	if err := r.p.Stop(context.Background(), "w-a", "test", 0); err != nil {
		t.Fatal(err)
	}
	r.equal("stopped", states(), "w-a:stopped:0")
	if err := r.p.Remove(context.Background(), "w-a"); err != nil {
		t.Fatal(err)
	}
	r.equal("removed", states(), "")
}

// WS-R41.
func TestPoolListNamesSessions(t *testing.T) {
	r := newRig(t, nil)
	id := holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")
	h, err := r.p.Acquire(context.Background(), sandbox.Spec{Box: id.Box(), Dir: filepath.Join(r.dir, "s")}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	list, err := r.p.List(context.Background())
	if err != nil || len(list) != 1 || list[0].Session != id || list[0].Boot != h.Box.Boot() || list[0].LastUsed.IsZero() {
		t.Fatalf("list %+v, %v", list, err)
	}
}
