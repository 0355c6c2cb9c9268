package place_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// two are scopes with the same workspace: session a has box w-x, session b box t-x.
type two struct{ place.Private }

func (two) Of(id holdfast.SessionID) place.Scope {
	return place.Scope{Box: map[holdfast.SessionID]holdfast.BoxID{"a": "w-x", "b": "t-x"}[id], Files: "w-x"}
}

func (two) Boxes(holdfast.SessionID) []holdfast.BoxID { return []holdfast.BoxID{"t-x", "w-x"} }

// TestWSR28_TwoBoxesOneTree: what looks whether the files of a session can have changed, and whether they can change while
// they are read, looks at both boxes that have them.
func TestWSR28_TwoBoxesOneTree(t *testing.T) {
	dir := t.TempDir()
	p := pool.New(pool.Config{Driver: mem.New(mem.Config{}), Token: 1, FreezeAfter: -1, StopAfter: -1, OnEvent: func(pool.Event) {}})
	if err := p.Start(t.Context(), false, func(holdfast.BoxID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
	boxes := place.New(place.Config{Dir: dir, Scopes: two{}, Drivers: []place.Driver{{Pool: p, Serves: []holdfast.Trust{holdfast.Untrusted}}}}, nil)
	row := func(id holdfast.SessionID) (r journal.Row) {
		r.ID, r.Trust = id, holdfast.Untrusted
		return r
	}
	hold := func(box holdfast.BoxID) *pool.Hold {
		t.Helper()
		h, err := p.Acquire(t.Context(), sandbox.Spec{Box: box, Dir: filepath.Join(dir, string(box)), Workspace: filepath.Join(dir, "files")}, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	untouched := func(when string, want bool) {
		t.Helper()
		for _, id := range []holdfast.SessionID{"a", "b"} {
			if got := boxes.Calm.Untouched(t.Context(), row(id)); got != want {
				t.Errorf("%s: untouched by what %s can see: %v", when, id, got)
			}
		}
	}
	still := func(when string, id holdfast.SessionID, want bool) {
		t.Helper()
		ran := false
		frozen, err := boxes.Calm.Still(t.Context(), row(id), time.Minute, nil, func(context.Context) error { ran = true; return nil })
		if !ran || err != nil || frozen != want {
			t.Errorf("%s: %s's box stood still: %v, ran %v, %v", when, id, frozen, ran, err)
		}
	}
	untouched("at first", false)
	untouched("without a box", true)
	for _, box := range []holdfast.BoxID{"w-x", "t-x"} {
		h := hold(box)
		untouched("after the start of "+string(box), false)
		untouched("with "+string(box), true)
		call := sandbox.Call{ID: holdfast.CallID("01a216a9-4a12-7576-9d8e-bab90d0ffc4f")}
		if _, err := h.Box.Exec(t.Context(), call, wire.ExecRequest{Shell: "echo x > made"}, sandbox.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
		h.Box.Release(call.ID)
		h.Release()
		untouched("after a command in "+string(box), false)
		untouched("after nothing", true)
	}
	still("nothing runs", "a", true)
	still("nothing runs", "b", true)

	h := hold("t-x")
	started, ended := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := h.Box.Exec(ctx, sandbox.Call{ID: "01a216a9-4a12-7576-9d8e-bab90d0ffc50"}, wire.ExecRequest{Shell: "sleep 1000"}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
		ended <- err
	}()
	<-started
	if !boxes.Calm.Alive(t.Context(), row("a")) || !boxes.Calm.Alive(t.Context(), row("b")) {
		t.Error("a process that can write to the files is not seen")
	}
	still("a command runs in the other box", "a", false)
	h.Release()
	untouched("while a command runs", false)
	if err := p.Stop(t.Context(), "t-x", "test", 0); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	still("the other box has ended", "a", true)
}
