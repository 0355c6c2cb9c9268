package pool_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// abandon starts a box for a caller who goes away before the box answers.
func (r *rig) abandon(name string) {
	r.Helper()
	r.d.HangHello(1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := r.p.Acquire(ctx, r.spec(name), false, nil); err == nil {
		r.Fatal("a box that does not answer was claimed")
	}
	r.d.HangHello(0)
	if !r.running(name) {
		r.Fatal("the box does not run")
	}
}

// TestWSP16_BoxesThatNobodyClaimed: a box whose caller went away before it could claim the box is stopped after five minutes,
// also where idle boxes are never stopped; one that was claimed in time is not, nor is one that a former server left.
func TestWSP16_BoxesThatNobodyClaimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.abandon("a")
		r.abandon("b")
		pass(4 * time.Minute)
		if !r.running("a") || !r.running("b") {
			t.Fatal("stopped before its time")
		}
		r.use("b")
		pass(2 * time.Minute)
		if r.running("a") || !r.running("b") {
			t.Errorf("after six minutes: never claimed runs %t, claimed runs %t", r.running("a"), r.running("b"))
		}
		pass(time.Hour)
		r.next(false)
		pass(time.Hour)
		if !r.running("b") {
			t.Error("a box that was used was stopped")
		}
	})
}

// TestWSR59_StopGivesTenSeconds: the processes of a box that is stopped have ten seconds between SIGTERM and SIGKILL.
func TestWSR59_StopGivesTenSeconds(t *testing.T) {
	testkit.Long(t)
	// In real seconds: imitated processes wait for files of the system, which stops the clock of a bubble.
	r := newRig(t, nil)
	h := r.get("a")
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = h.Box.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: `trap '' TERM; echo up; sleep 100000`},
			sandbox.ExecOptions{Stdout: &firstWrite{seen: started}})
	}()
	<-started
	began := time.Now()
	if err := r.p.Close(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 10*time.Second || took > time.Minute {
		t.Errorf("a process that ignores SIGTERM ended after %s", took)
	}
	<-done
}

// firstWrite closes seen at the first write.
type firstWrite struct {
	once sync.Once
	seen chan struct{}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.seen) })
	return len(b), nil
}

// TestWSR67_OrphansAreRemovedUnlessClaimed: a claimed box is not removed. The pool keeps others from claiming the box while
// it asks again whether a session has the box; it removes the box only if none has.
func TestWSR67_OrphansAreRemovedUnlessClaimed(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	remove := func(orphan bool) bool {
		t.Helper()
		removed, err := r.p.RemoveOrphan(ctx, "w-a", func() bool { return orphan })
		if err != nil {
			t.Fatal(err)
		}
		return removed
	}
	h := r.get("a")
	if remove(true) || !r.running("a") {
		t.Error("a claimed box was removed")
	}
	h.Release()
	if remove(false) || !r.running("a") {
		t.Error("a box whose session came back was removed")
	}
	boot := h.Box.Boot()
	claimed := make(chan *pool.Hold)
	removed, err := r.p.RemoveOrphan(ctx, "w-a", func() bool {
		go func() {
			h, err := r.p.Acquire(ctx, r.spec("a"), false, nil)
			if err != nil {
				t.Error(err)
			}
			claimed <- h
		}()
		return true
	})
	if err != nil || !removed {
		t.Fatal(removed, err)
	}
	h = <-claimed
	defer h.Release()
	if h.Box.Boot() == boot {
		t.Error("a claim got the box that was being removed")
	}
	if _, err := h.Box.Exec(ctx, r.call(), wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{}); err != nil {
		t.Error(err)
	}
	if list, err := r.d.List(ctx); err != nil || len(list) != 1 || list[0].Box != holdfast.BoxID("w-a") {
		t.Errorf("%+v, %v", list, err)
	}
}

// A box to which the server cannot connect for lack of file descriptors is neither stopped nor counted as lost.
func TestPoolKeepsABoxThatItCannotAsk(t *testing.T) {
	r := newRig(t, nil)
	h := r.get("a")
	boot := h.Box.Boot()
	r.d.FailConnect(1000, holdfast.Errorf(holdfast.KindBusy, "driver", "no descriptor"))
	r.d.DropConnection("w-a")
	<-h.Box.Done()
	h.Release()
	_, err := r.p.Acquire(context.Background(), r.spec("a"), false, nil)
	r.kind(err, holdfast.KindBusy)
	r.d.FailConnect(0, nil)
	r.equal("boot afterwards", r.use("a"), boot)
}
