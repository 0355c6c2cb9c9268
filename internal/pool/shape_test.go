package pool_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// walled claims box a with walls.
func (r *rig) walled(masked ...string) *pool.Hold {
	r.Helper()
	s := r.spec("a")
	s.Walls = sandbox.Walls{Masked: masked}
	h, err := r.p.Acquire(context.Background(), s, false, nil)
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// TestPoolWallsDecideAboutABox: a box with the wanted walls is used again; one with
// others is ended and started again, and the reason is reported.
func TestPoolWallsDecideAboutABox(t *testing.T) {
	r := newRig(t, nil)
	h := r.walled("/a", "/b")
	boot := h.Box.Boot()
	h.Release()
	r.forget()
	h = r.walled("/b", "/a")
	if h.Box.Boot() != boot || h.Stale() {
		t.Error("the same walls in another order started the box again")
	}
	h.Release()
	for _, masked := range [][]string{{"/a"}, nil} {
		h = r.walled(masked...)
		if h.Box.Boot() == boot || h.Stale() {
			t.Errorf("with walls %q the box of before goes on", masked)
		}
		boot = h.Box.Boot()
		h.Release()
	}
	r.equal("events", r.told(), "stopped started stopped started")
	if why := r.events()[0].Ended.Reason; !strings.Contains(why, "path rules changed") {
		t.Errorf("the reason is %q", why)
	}
}

// TestPoolWallsOfABoxInUse: a box that is claimed, or runs a call, keeps its walls, and
// the claim is stale.
func TestPoolWallsOfABoxInUse(t *testing.T) {
	r := newRig(t, nil)
	first := r.walled("/a")
	second := r.walled("/b")
	if !second.Stale() || first.Stale() || second.Box != first.Box {
		t.Error("a held box was started again, or not said to be stale")
	}
	call := r.call()
	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = first.Box.Exec(ctx, call, wire.ExecRequest{Shell: "while [ ! -f go ]; do sleep 0.01; done"}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
	}()
	<-started
	first.Release()
	second.Release()
	third := r.walled("/b")
	if !third.Stale() {
		t.Error("a box in which a call runs was started again")
	}
	if _, err := third.Box.Write(context.Background(), r.call(), wire.WriteRequest{Path: "go"}, nil); err != nil {
		t.Fatal(err)
	}
	<-done
	cancel()
	third.Release()
	fourth := r.walled("/b")
	defer fourth.Release()
	if fourth.Stale() || fourth.Box == first.Box {
		t.Error("an idle box keeps older walls")
	}
	r.equal("events", r.told(), "started stopped started")
}

// TestPoolWallsOfAnAdoptedBox: the next server knows the walls of the boxes it finds.
func TestPoolWallsOfAnAdoptedBox(t *testing.T) {
	r := newRig(t, nil)
	h := r.walled("/a")
	boot := h.Box.Boot()
	h.Release()
	r.next(false)
	h = r.walled("/a")
	if h.Box.Boot() != boot {
		t.Error("an adopted box with the right walls was started again")
	}
	h.Release()
	r.next(false)
	h = r.walled("/a", "/b")
	defer h.Release()
	if h.Box.Boot() == boot || h.Stale() {
		t.Error("an adopted box with other walls goes on")
	}
}

// guarding is a driver that can lose a wall.
type guarding struct {
	sandbox.Driver
	lost bool
}

func (g *guarding) WallsHold(holdfast.BoxID) bool { return !g.lost }

// TestPoolWallsThatAreGone: a box that lacks a wall is started again before it is used.
func TestPoolWallsThatAreGone(t *testing.T) {
	g := &guarding{}
	r := newRig(t, nil)
	g.Driver = r.d
	cfg := r.cfg
	cfg.Driver, cfg.Token = g, 2
	var reasons []string
	cfg.OnEvent = func(ev pool.Event) { reasons = append(reasons, ev.Ended.Reason) }
	p := pool.New(cfg)
	if err := p.Start(context.Background(), false, func(holdfast.BoxID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background(), true)
	s := r.spec("g")
	s.Walls = sandbox.Walls{Masked: []string{"/a"}}
	get := func() *pool.Hold {
		t.Helper()
		h, err := p.Acquire(context.Background(), s, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := get()
	boot := h.Box.Boot()
	g.lost = true
	if h.WallsHold() {
		t.Error("the claim does not know that a wall is gone")
	}
	h.Release()
	h = get()
	defer h.Release()
	if h.Box.Boot() == boot {
		t.Error("a box that lacks a wall goes on")
	}
	if len(reasons) < 2 || !strings.Contains(reasons[1], "removed a wall") {
		t.Errorf("reasons %q", reasons)
	}
}

// limited claims box a with a limit of processes, for a turn or not.
func (r *rig) limited(pids int64, turn bool) *pool.Hold {
	r.Helper()
	s := r.spec("a")
	s.Limits.Pids = pids
	h, err := r.p.Acquire(context.Background(), s, turn, func(int) {})
	if err != nil {
		r.Fatal(err)
	}
	return h
}

// TestWSP12_DriftReplacesAnIdleBox: a box whose settings changed goes on for those who have claimed it, for those who join
// them, and while a call or any process runs in it. When it is idle, the next claim starts it again, and says why.
func TestWSP12_DriftReplacesAnIdleBox(t *testing.T) {
	r := newRig(t, nil)
	first := r.limited(64, true)
	boot := first.Box.Boot()
	second := r.limited(32, true)
	if second.Box != first.Box || second.Stale() || second.Drifted() {
		t.Errorf("the turn of a sibling: another box, stale %t, drifted %t", second.Stale(), second.Drifted())
	}
	first.Release()
	if third := r.limited(32, false); third.Box != second.Box {
		t.Error("a box in use was started again")
	} else {
		third.Release()
	}
	r.sh(second.Box, "while [ ! -f go ]; do sleep 0.01; done &")
	second.Release()
	fourth := r.limited(32, true)
	if fourth.Box.Boot() != boot || fourth.Stale() || !fourth.Drifted() {
		t.Errorf("a box in which a process runs was started again, or drifted %t", fourth.Drifted())
	}
	r.sh(fourth.Box, "touch go")
	r.eventually("the process ends", func() bool {
		list, err := fourth.Box.Processes(context.Background())
		return err == nil && len(list) == 0
	})
	fourth.Release()
	r.equal("events", r.told(), "started")
	r.forget()
	fifth := r.limited(32, true)
	if fifth.Box.Boot() == boot || fifth.Drifted() {
		t.Error("an idle box keeps older limits")
	}
	boot = fifth.Box.Boot()
	fifth.Release()
	r.equal("events", r.told(), "stopped started")
	if why := r.events()[0].Ended.Reason; why != pool.SpecChanged {
		t.Errorf("the reason is %q", why)
	}
	if sixth := r.limited(32, false); sixth.Box.Boot() != boot {
		t.Error("a box with the same limits was started again")
	} else {
		sixth.Release()
	}
}

// TestWSP12_DriftOfAnAdoptedBox: a new server finds boxes that run, and knows from their records with which spec each was
// started. A box without such a record, from an earlier release, starts again when it is idle.
func TestWSP12_DriftOfAnAdoptedBox(t *testing.T) {
	r := newRig(t, nil)
	h := r.limited(64, false)
	boot := h.Box.Boot()
	h.Release()
	r.next(false)
	h = r.limited(64, false)
	if h.Box.Boot() != boot {
		t.Error("an adopted box with the right limits was started again")
	}
	h.Release()
	r.next(false)
	h = r.limited(32, false)
	if h.Box.Boot() == boot {
		t.Error("an adopted box with other limits goes on")
	}
	boot = h.Box.Boot()
	h.Release()
	r.older = true
	r.next(false)
	r.older = false
	h = r.limited(32, false)
	defer h.Release()
	if h.Box.Boot() == boot {
		t.Error("a box with settings that are not known goes on")
	}
}
