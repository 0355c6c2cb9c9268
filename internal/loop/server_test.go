package loop_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// TestServerToolsAreRecorded: a tool that changes something outside of the box has its
// intent recorded first, and starts no box.
func TestServerToolsAreRecorded(t *testing.T) {
	w := newWorld(t)
	w.tools["Post"] = func(_ context.Context, c tool.Call) (tool.Result, error) {
		if s := entries[holdfast.ToolStarted](w); len(s) != 1 || s[0].Call != c.ID || s[0].Box != "" || s[0].Boot != "" {
			t.Errorf("before it ran, the log had %+v", s)
		}
		w.effect(c.ID)
		return tool.Result{Content: "posted"}, nil
	}
	if _, err := w.loop().Run(t.Context(), script(`[{"tool":"Post"},{"say":"done"}]`), w.env()); err != nil {
		t.Fatal(err)
	}
	if got := w.shape(); got != "assistant requested allowed started | finished" {
		t.Errorf("commits %s", got)
	}
	if len(w.lives) != 0 || w.ran["call-1"] != 1 {
		t.Errorf("%d boxes, ran %v", len(w.lives), w.ran)
	}
}

// TestServerToolsAreUnknownAfterACrash: one that ran when the server ended is never run
// again, nobody is asked about it, and what follows goes on.
func TestServerToolsAreUnknownAfterACrash(t *testing.T) {
	for _, gone := range []error{nil, errors.New("no box to be had")} {
		w := newWorld(t)
		w.boxErr = gone
		use := loop.Use{Name: "Post", State: loop.Started, Started: holdfast.ToolStarted{Call: "old"}}
		c := dangling(use, loop.Use{Name: "Post", State: loop.Requested})
		c.Messages[0].Blocks[0].Text = `<script>[{"tool":"Post"},{"say":"went on"}]</script>`
		if _, err := w.loop().Run(t.Context(), c, w.env()); err != nil {
			t.Fatal(err)
		}
		if u := entries[holdfast.ToolUnknown](w); len(u) != 1 || u[0].Call != "old" || u[0].Reason != loop.ReasonServerEnded {
			t.Errorf("%+v", u)
		}
		if got := w.shape(); got != "allowed unknown | started | finished" {
			t.Errorf("commits %s", got)
		}
		if len(w.lives) != 0 || w.ran["old"] != 0 || w.ran["call-1"] != 1 {
			t.Errorf("%d boxes, ran %v", len(w.lives), w.ran)
		}
		for _, o := range w.order {
			if o == "outcome" {
				t.Error("somebody was asked for the outcome")
			}
		}
	}
}

// TestServerToolsThatLoseTrack: a tool that cannot say whether it acted leaves an unknown
// outcome; one that is interrupted may have done part of its work.
func TestServerToolsThatLoseTrack(t *testing.T) {
	w := newWorld(t)
	w.tools["Post"] = func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{}, holdfast.Errorf(holdfast.KindUnavailable, "post", "no answer from %s", "example.com")
	}
	if _, err := w.loop().Run(t.Context(), script(`[{"tool":"Post"},{"say":"done"}]`), w.env()); err != nil {
		t.Fatal(err)
	}
	if u := entries[holdfast.ToolUnknown](w); len(u) != 1 || u[0].Reason != "post: no answer from example.com" {
		t.Errorf("%+v", u)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w = newWorld(t)
	w.tools["Post"] = func(context.Context, tool.Call) (tool.Result, error) {
		cancel()
		return tool.Result{}, ctx.Err()
	}
	if _, err := w.loop().Run(ctx, script(`[{"tool":"Post"},{"say":"done"}]`), w.env()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if f := entries[holdfast.ToolFinished](w); len(f) != 1 || f[0].Outcome != holdfast.ExitCanceled {
		t.Errorf("%+v", f)
	}
}
