package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
)

func opened(t testing.TB) *core {
	s := &core{phase: phaseNew}
	if err := s.begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end() })
	return s
}

// TestPlacesAreNeverMoreThanAllowed: whatever is asked of them in which order, boxes take no
// more places than there are, and none while another box is first in the line.
func TestPlacesAreNeverMoreThanAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &places{most: rapid.IntRange(1, 3).Draw(t, "most"), taken: map[holdfast.BoxID]bool{}, core: &core{}}
		names := rapid.SampledFrom([]holdfast.BoxID{"a", "b", "c", "d", "e"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			box, before := names.Draw(t, "box"), len(p.taken)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				had, first := p.has(box), len(p.line) == 0 || p.line[0].box == box
				if got, want := p.take(box), had || first && before < p.most; got != want {
					t.Fatalf("take(%s) = %v with %d of %d taken, first in line: %v", box, got, before, p.most, first)
				}
			case 1:
				p.free(box)
			case 2:
				if to := names.Draw(t, "to"); p.has(box) && !p.has(to) {
					p.pass(box, to)
					if p.has(box) || !p.has(to) {
						t.Fatalf("the place of %s did not pass to %s", box, to)
					}
				}
			case 3:
				p.line = append(p.line, newWaiter(box))
			case 4:
				if len(p.line) > 0 {
					p.leave(p.line[0])
				}
			}
			if len(p.taken) > p.most {
				t.Fatalf("%d of %d places are taken", len(p.taken), p.most)
			}
		}
	})
}

// TestPlacesAboveTheLimit: boxes of a former server may be more than allowed; an evicted one
// then leaves no place to another.
func TestPlacesAboveTheLimit(t *testing.T) {
	p := &places{most: 1, taken: map[holdfast.BoxID]bool{}}
	p.keep("a")
	p.keep("b")
	if p.pass("a", "c"); p.has("c") || p.vacant() {
		t.Errorf("taken: %v", p.taken)
	}
	if p.pass("b", "c"); !p.has("c") {
		t.Errorf("taken: %v", p.taken)
	}
}

// TestTurnsAgreeOnWalls: whatever comes and goes in which order, all claims of a box have the same walls, no more turns
// use it than may, and the first in the queue waits only while it must.
func TestTurnsAgreeOnWalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := &turns{core: &core{}, most: rapid.IntRange(1, 3).Draw(t, "most")}
		type claim struct {
			walls string
			turn  bool
		}
		var inside []claim
		var waiting []*waiter
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch c := (claim{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "walls"), rapid.Bool().Draw(t, "turn")}); rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				if u.take(c.walls, c.turn) {
					inside = append(inside, c)
				} else if c.turn {
					w := newWaiter("")
					w.walls = c.walls
					u.queue, waiting = append(u.queue, w), append(waiting, w)
				}
			case 1:
				if len(inside) > 0 {
					i := rapid.IntRange(0, len(inside)-1).Draw(t, "which")
					u.end(inside[i].turn)
					inside = slices.Delete(inside, i, i+1)
				}
			case 2:
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
					u.leave(waiting[i])
					waiting = slices.Delete(waiting, i, i+1)
				}
			}
			for len(waiting) > 0 && waiting[0].granted {
				inside, waiting = append(inside, claim{waiting[0].walls, true}), waiting[1:]
			}
			busy := len(slices.DeleteFunc(slices.Clone(inside), func(c claim) bool { return !c.turn }))
			if busy > u.most || slices.ContainsFunc(inside, func(c claim) bool { return c.walls != inside[0].walls }) {
				t.Fatalf("inside: %v", inside)
			}
			if len(waiting) != len(u.queue) || len(waiting) > 0 && busy < u.most && (len(inside) == 0 || inside[0].walls == waiting[0].walls) {
				t.Fatalf("%d wait, %d in the queue, inside: %v", len(waiting), len(u.queue), inside)
			}
		}
	})
}

// TestTurnsEndWithThePool: a turn that waits for its place gets an error when the pool closes,
// and one that has its place keeps it.
func TestTurnsEndWithThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t)
		u := &turns{core: s, most: 1}
		if err := u.enter(t.Context(), "b", "", true, nil); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() { failed <- u.enter(context.Background(), "b", "", true, nil) }()
		synctest.Wait()
		s.end()
		if err := <-failed; !holdfast.IsKind(err, holdfast.KindUnavailable) || len(u.queue) != 0 || u.taken != 1 {
			t.Errorf("%v, %d in the queue, %d taken", err, len(u.queue), u.taken)
		}
	})
}

// TestJanitorNext: what is done to a box next follows from its state alone.
func TestJanitorNext(t *testing.T) {
	now := time.Unix(1000, 0)
	conn := new(sandbox.Box)
	for name, c := range map[string]struct {
		change func(*entry)
		want   job
		after  time.Duration
	}{
		"idle":                       {func(*entry) {}, jobFreeze, time.Minute},
		"it does not run":            {func(e *entry) { e.box.running = false }, jobNone, 0},
		"frozen":                     {func(e *entry) { e.box.frozen = true }, jobStop, time.Hour},
		"the driver could not":       {func(e *entry) { e.box.noFreeze = true }, jobStop, time.Hour},
		"not connected":              {func(e *entry) { e.box.conn, e.dirty = nil, true }, jobStop, time.Hour},
		"never claimed":              {func(e *entry) { e.box.claimed, e.box.frozen = false, true }, jobStop, unclaimedAfter},
		"used":                       {func(e *entry) { e.holds = 1 }, jobNone, 0},
		"used a moment ago":          {func(e *entry) { e.dirty, e.checkedAt = true, now }, jobCounters, counterEvery},
		"in use, with hits possible": {func(e *entry) { e.holds, e.dirty, e.checkedAt = 1, true, now }, jobCounters, counterEvery},
		"about to be used":           {func(e *entry) { e.users = 1 }, jobNone, 0},
		"a job is under way":         {func(e *entry) { e.acting = true }, jobNone, 0},
		"a turn waits for its box":   {func(e *entry) { e.turns.taken = 1 }, jobNone, 0},
	} {
		j := &janitor{freezeAfter: time.Minute, stopAfter: time.Hour}
		e := &entry{box: life{running: true, conn: conn, usedAt: now, claimed: true}}
		c.change(e)
		got, due := j.next(e)
		if got != c.want || got != jobNone && due.Sub(now) != c.after {
			t.Errorf("%s: job %d after %s, want %d after %s", name, got, due.Sub(now), c.want, c.after)
		}
	}
}

// TestLife: a box starts, is frozen, wakes as the same one, and stops, without a pool; each act
// is told, a freeze and a stop before they happen.
func TestLife(t *testing.T) {
	d := mem.New(mem.Config{})
	var told []string
	b := newBackend(Config{Driver: d, Token: 1, OnEvent: func(ev Event) {
		infos, err := d.List(t.Context())
		if err != nil || len(infos) != 1 {
			t.Errorf("list %v, %v", infos, err)
			return
		}
		told = append(told, fmt.Sprintf("%s frozen=%v running=%v", ev.Type, infos[0].Frozen, infos[0].Running))
	}}, func() {})
	l := newLife("w-a", b, new(sync.Mutex))
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if ready, err := l.wake(ctx); ready || err != nil {
		t.Fatalf("a box that never ran wakes: %v, %v", ready, err)
	}
	must(l.start(ctx, sandbox.Spec{Box: "w-a", Dir: t.TempDir()}))
	boot := l.boot
	must(l.freeze(ctx, l.conn))
	if l.ready() {
		t.Error("a frozen box is ready")
	}
	if ready, err := l.wake(ctx); !ready || err != nil || l.boot != boot || !l.ready() {
		t.Errorf("ready %v, %v, boot %s after %s", ready, err, l.boot, boot)
	}
	must(l.stop(ctx, holdfast.BoxEnded{Reason: "test"}, 0))
	must(d.Remove(ctx, "w-a"))
	want := []string{"box.started frozen=false running=true", "box.frozen frozen=false running=true", "box.stopped frozen=false running=true"}
	if !slices.Equal(told, want) {
		t.Errorf("told %s", strings.Join(told, ", "))
	}
}

// fillers are boxes that fill a disk, without a pool.
type fillers struct {
	mu    sync.Mutex
	boxes map[holdfast.BoxID]runner
	bytes map[holdfast.BoxID]int64
	ended map[holdfast.BoxID]holdfast.BoxEnded
}

func (f *fillers) running() map[holdfast.BoxID]runner {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[holdfast.BoxID]runner{}
	for id, r := range f.boxes {
		out[id] = r
	}
	return out
}

func (f *fillers) end(_ context.Context, id holdfast.BoxID, ended holdfast.BoxEnded) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, id)
	f.ended[id] = ended
	return nil
}

// TestWatcher: of the boxes that grow the one over its limit is stopped; one that is frozen and
// one that grows within its limit go on.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fillers{boxes: map[holdfast.BoxID]runner{"a": {"1", false}, "b": {"2", false}, "c": {"3", true}}, bytes: map[holdfast.BoxID]int64{}, ended: map[holdfast.BoxID]holdfast.BoxEnded{}}
		w := newWatcher(&Disk{
			Limit: 1 << 30,
			Space: func() (DiskSpace, error) { return DiskSpace{Bytes: 1 << 40, Free: 1 << 39}, nil },
			Usage: func(_ context.Context, id holdfast.BoxID) (sandbox.DiskUsage, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				return sandbox.DiskUsage{Bytes: f.bytes[id]}, nil
			},
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); w.watch(ctx, f) }()
		w.grows()
		synctest.Wait()
		f.mu.Lock()
		f.bytes["a"], f.bytes["b"], f.bytes["c"] = 2<<30, 1<<29, 2<<30
		f.mu.Unlock()
		<-time.After(2 * time.Minute)
		cancel()
		<-done
		if ended := f.ended; len(ended) != 1 || ended["a"].OvershootBytes != 1<<30 {
			t.Errorf("ended: %+v", ended)
		}
	})
}
