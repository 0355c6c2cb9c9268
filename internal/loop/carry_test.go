package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/sandbox"
)

var errLost = holdfast.Errorf(holdfast.KindUnavailable, "box", "the connection broke")

// dangling is a conversation cut off with uses of Bash (or another tool) in
// certain states.
func dangling(uses ...loop.Use) loop.Conversation {
	c := script(`[{"tools":[]},{"say":"went on"}]`)
	c.Messages[0].Blocks[0].Text = `<script>[{"tool":"Bash"},{"say":"went on"}]</script>`
	m := model.Message{Role: model.Assistant}
	for i := range uses {
		u := &uses[i]
		if u.Name == "" {
			u.Name = "Bash"
		}
		u.ID, u.Input = fmt.Sprint("use", i), []byte(`{}`)
		u.Started.ToolUseID = u.ID
		if u.State == loop.Answered {
			u.Result = model.Block{Type: model.ToolResult, ID: u.ID, Text: "from the log"}
		}
		m.Blocks = append(m.Blocks, model.Block{Type: model.ToolUse, ID: u.ID, Name: u.Name, Input: u.Input})
	}
	c.Messages = append(c.Messages, m)
	c.Pending = uses
	return c
}

func started(call, boot string) loop.Use {
	return loop.Use{State: loop.Started, Started: holdfast.ToolStarted{Call: holdfast.CallID(call), Box: "s-box", Boot: boot}}
}

func TestGoesOnFromEveryState(t *testing.T) {
	for _, c := range []struct {
		name  string
		use   loop.Use
		shape string
		ran   int
	}{
		{"requested", loop.Use{State: loop.Requested}, "allowed started | finished", 1},
		{"requested, read-only", loop.Use{State: loop.Requested, Name: "Read"}, "allowed | finished", 0},
		{"requested, gone", loop.Use{State: loop.Requested, Name: "Gone"}, "denied", 0},
		{"allowed", loop.Use{State: loop.Allowed}, "started | finished", 1},
		{"allowed, read-only", loop.Use{State: loop.Allowed, Name: "Read"}, "finished", 0},
		{"allowed, gone", loop.Use{State: loop.Allowed, Name: "Gone"}, "finished:error", 0},
		{"started, box there", started("old", "boot1"), "finished", 1},
		{"started, box lost", started("old", "boot0"), "unknown", 0},
		{"started, tool gone", loop.Use{State: loop.Started, Name: "Gone", Started: holdfast.ToolStarted{Call: "old", Boot: "boot1"}}, "unknown", 0},
		{"answered", loop.Use{State: loop.Answered}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.Box(t.Context()); err != nil {
				t.Fatal(err)
			}
			conv := dangling(c.use)
			conv.Steps, conv.Usage = 1, holdfast.Usage{InputTokens: 1000}
			l := w.loop()
			p := &request{Provider: l.Provider}
			l.Provider = p
			res, err := l.Run(t.Context(), conv, w.env())
			if err != nil {
				t.Fatal(err)
			}
			if got := w.shape(); got != c.shape {
				t.Errorf("commits %q, want %q", got, c.shape)
			}
			if res.Text != "went on" || res.Steps != 2 || res.Usage.InputTokens <= 1000 {
				t.Errorf("%+v", res)
			}
			total := 0
			for id, n := range w.ran {
				total += n
				if c.use.State == loop.Started && id != "old" {
					t.Errorf("issued again as %s", id)
				}
			}
			if total != c.ran {
				t.Errorf("ran %d times, want %d", total, c.ran)
			}
			last := p.reqs[0].Messages
			if m := last[len(last)-1]; m.Role != model.User || len(m.Blocks) != 1 || m.Blocks[0].ID != "use0" {
				t.Errorf("the use was answered with %+v", m)
			}
		})
	}
}

// TestACallTookWhatItTook: a call that a later server takes up is not as long as that
// one waited for it, but what its box says, or else since its intent was recorded.
func TestACallTookWhatItTook(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	for _, c := range []struct{ told, want float64 }{{4000, 4000}, {0, 7000}} {
		w := newWorld(t)
		if _, err := w.Box(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.tools = map[string]func(context.Context, tool.Call) (tool.Result, error){
			"Bash": func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{DurationMS: c.told}, nil },
		}
		use := started("old", "boot1")
		use.Began = now.Add(-7 * time.Second)
		l := w.loop()
		l.Now = func() time.Time { return now }
		if _, err := l.Run(t.Context(), dangling(use), w.env()); err != nil {
			t.Fatal(err)
		}
		if f := entries[holdfast.ToolFinished](w); len(f) != 1 || f[0].DurationMS != c.want {
			t.Errorf("recorded %+v, want %v ms", f, c.want)
		}
	}
}

func TestHZ4_UnknownIsSaidAndNotRunAgain(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Box(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := w.loop()
	p := &request{Provider: l.Provider}
	l.Provider = p
	if _, err := l.Run(t.Context(), dangling(started("old", "boot0"), loop.Use{State: loop.Requested}), w.env()); err != nil {
		t.Fatal(err)
	}
	u := entries[holdfast.ToolUnknown](w)
	if len(u) != 1 || u[0].Call != "old" || u[0].Reason != loop.ReasonBoxDied {
		t.Errorf("%+v", u)
	}
	if w.ran["old"] != 0 || w.ran["call-1"] != 1 {
		t.Errorf("ran %v", w.ran)
	}
	m := p.reqs[0].Messages[2]
	want := "the outcome of this call is unknown: the sandbox ended while it ran; check before repeating it"
	if m.Blocks[0].Text != want || !m.Blocks[0].IsError {
		t.Errorf("the model was told %+v", m.Blocks[0])
	}
	if got := w.shape(); got != "allowed unknown | started | finished" {
		t.Errorf("commits %s", got)
	}
}

func TestReissuedModelCallIsSaid(t *testing.T) {
	w := newWorld(t)
	c := script(`[{"say":"x"}]`)
	c.Reissue = true
	if _, err := w.loop().Run(t.Context(), c, w.env()); err != nil {
		t.Fatal(err)
	}
	if w.shape() != loop.NoticeReissued {
		t.Error(w.shape())
	}
}

func TestJoinedComesAfterTheResults(t *testing.T) {
	w := newWorld(t)
	l := w.loop()
	p := &request{Provider: l.Provider}
	l.Provider = p
	c := dangling(loop.Use{State: loop.Answered})
	c.Joined = []string{"one", "two"}
	if _, err := l.Run(t.Context(), c, w.env()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range p.reqs[0].Messages[2].Blocks {
		got = append(got, b.Text)
	}
	if d := cmp.Diff([]string{"from the log", "one", "two"}, got); d != "" {
		t.Error(d)
	}
}

// The box dies with a call in flight: nobody can know, and the next call gets a
// new box.
func TestBoxDiesMidCall(t *testing.T) {
	w := newWorld(t)
	w.tools["Bash"] = func(_ context.Context, c tool.Call) (tool.Result, error) {
		w.effect(c.ID)
		if len(w.ran) > 1 {
			return tool.Result{Content: "fine"}, nil
		}
		w.die()
		// The next life, before anybody asks.
		_, _ = w.Box(t.Context())
		return tool.Result{}, errLost
	}
	res := w.run(`[{"tools":[{"tool":"Bash"},{"tool":"Bash"}]},{"say":"went on"}]`)
	if res.Text != "went on" {
		t.Errorf("%+v", res)
	}
	want := "assistant requested requested allowed allowed started | unknown | started | finished"
	if got := w.shape(); got != want {
		t.Errorf("commits %s", got)
	}
	s := entries[holdfast.ToolStarted](w)
	if s[0].Boot != "boot1" || s[1].Boot != "boot2" {
		t.Errorf("%+v", s)
	}
	w.check()
}

// The connection breaks, the box lives: the call is issued again under its id,
// to which boxd has the answer.
func TestPipeBreaksMidCall(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.tools["Bash"] = func(_ context.Context, c tool.Call) (tool.Result, error) {
		if n++; n == 1 {
			w.effect(c.ID)
			old := w.box
			w.mu.Lock()
			w.box = new(sandbox.Box)
			w.lives[w.box] = w.lives[old]
			w.mu.Unlock()
			return tool.Result{}, errLost
		}
		if w.ran[c.ID] != 1 {
			t.Errorf("issued again as %s", c.ID)
		}
		return tool.Result{Content: "kept"}, nil
	}
	w.run(`[{"tool":"Bash"}]`)
	if f := entries[holdfast.ToolFinished](w); len(f) != 1 || f[0].Content != "kept" || f[0].Call != "call-1" {
		t.Errorf("%+v", f)
	}
	w.check()
}

// A live box that says unavailable has said that it did not act.
func TestUnavailableFromALiveBoxIsAnError(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.tools["Bash"] = func(context.Context, tool.Call) (tool.Result, error) {
		n++
		return tool.Result{}, errLost
	}
	w.run(`[{"tool":"Bash"}]`)
	if f := entries[holdfast.ToolFinished](w); len(f) != 1 || f[0].Outcome != holdfast.ExitError || n != 3 {
		t.Errorf("%+v after %d tries", f, n)
	}
}

func TestConnectionThatNeverHoldsIsUnknown(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.outcome = func(holdfast.ToolStarted) (*sandbox.Box, bool, error) { return new(sandbox.Box), false, nil }
	w.tools["Bash"] = func(context.Context, tool.Call) (tool.Result, error) {
		n++
		w.die()
		return tool.Result{}, errLost
	}
	if _, err := w.loop().Run(t.Context(), script(`[{"tool":"Bash"}]`), w.env()); !errors.Is(err, errLost) {
		t.Errorf("ended with %v", err)
	}
	if u := entries[holdfast.ToolUnknown](w); len(u) != 1 || n > 20 || !has(u[0].Reason, "connection broke") {
		t.Errorf("%+v after %d tries", u, n)
	}
}

func TestOutcomeIsAskedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := 0
		w.outcome = func(holdfast.ToolStarted) (*sandbox.Box, bool, error) {
			if n++; n < 4 {
				return nil, false, errors.New("not now")
			}
			box, err := w.Box(t.Context())
			return box, false, err
		}
		if _, err := w.loop().Run(t.Context(), dangling(started("old", "boot1")), w.env()); err != nil {
			t.Fatal(err)
		}
		if w.shape() != "finished" || n != 4 {
			t.Errorf("%s after %d questions", w.shape(), n)
		}
		w = newWorld(t)
		never := errors.New("never")
		w.outcome = func(holdfast.ToolStarted) (*sandbox.Box, bool, error) { return nil, false, never }
		if _, err := w.loop().Run(t.Context(), dangling(started("old", "boot1"), started("older", "boot1")), w.env()); !errors.Is(err, never) {
			t.Errorf("ended with %v", err)
		}
		if u := entries[holdfast.ToolUnknown](w); len(u) != 2 || !has(u[0].Reason, "could not be asked for the result: never") {
			t.Errorf("%+v", u)
		}
	})
}

func TestReaderRunsAgainInANewBox(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.tools["Read"] = func(context.Context, tool.Call) (tool.Result, error) {
		if n++; n == 1 {
			w.die()
			return tool.Result{}, errLost
		}
		return tool.Result{Content: "read"}, nil
	}
	w.run(`[{"tool":"Read"}]`)
	if f := entries[holdfast.ToolFinished](w); len(f) != 1 || f[0].Content != "read" || len(w.lives) != 2 {
		t.Errorf("%+v", f)
	}
}

// A box that cannot be had fails the turn, with every use answered.
func TestNoBoxFailsTheTurn(t *testing.T) {
	noDriver := holdfast.Errorf(holdfast.KindUnavailable, "box", "no driver").WithHint("run holdfast doctor")
	for tools, want := range map[string]string{
		`{"tool":"Note"},{"tool":"Bash"},{"tool":"Read"},{"tool":"Note"}`: "assistant requested requested requested requested allowed allowed allowed allowed | finished finished:error finished:canceled finished:canceled",
		`{"tool":"Read"},{"tool":"Note"},{"tool":"Bash"}`:                 "assistant requested requested requested allowed allowed allowed | finished:error finished finished:canceled",
	} {
		w := newWorld(t)
		w.boxErr = noDriver
		res, err := w.loop().Run(t.Context(), script(`[{"tools":[`+tools+`]},{"say":"never"}]`), w.env())
		if !errors.Is(err, noDriver) || res.Steps != 1 || res.Usage.InputTokens == 0 || res.Final != nil {
			t.Errorf("%+v, %v", res, err)
		}
		if got := w.shape(); got != want {
			t.Errorf("commits %s", got)
		}
		for _, f := range entries[holdfast.ToolFinished](w) {
			if f.Outcome == holdfast.ExitError && f.Content != "box: no driver (run holdfast doctor)" || f.Call != "" {
				t.Errorf("%+v", f)
			}
		}
		w.check()
	}
}

// A box that takes its time does not hold back what the model said.
func TestSlowBoxSplitsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.boxWait = time.Second
		w.run(`[{"tool":"Bash"},{"tool":"Bash"}]`)
		want := "assistant requested allowed | started | finished | assistant requested allowed started | finished"
		if got := w.shape(); got != want {
			t.Errorf("commits %s", got)
		}
		w = newWorld(t)
		w.boxWait = time.Second
		w.recordErr = func(int) error { return errStop }
		if _, err := w.loop().Run(t.Context(), script(`[{"tool":"Bash"}]`), w.env()); !errors.Is(err, errStop) {
			t.Error(err)
		}
	})
}

// TestACallThatNeverLeftIsNotUnknown: the box ended before it received the call, so the
// next box gets it, under its id.
func TestACallThatNeverLeftIsNotUnknown(t *testing.T) {
	for name, again := range map[string]bool{"another box comes": true, "none comes": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := true
			w.tools["Bash"] = func(_ context.Context, c tool.Call) (tool.Result, error) {
				if first {
					first = false
					w.die()
					if !again {
						w.boxErr = errLost
					}
					return tool.Result{}, sandbox.ErrUnsent
				}
				w.effect(c.ID)
				return tool.Result{Content: "ran"}, nil
			}
			_, err := w.loop().Run(t.Context(), script(`[{"tool":"Bash"},{"say":"went on"}]`), w.env())
			if (err == nil) != again {
				t.Errorf("the turn ended with %v", err)
			}
			f, u := entries[holdfast.ToolFinished](w), entries[holdfast.ToolUnknown](w)
			if len(f) != 1 || len(u) != 0 || f[0].IsError == again || (w.ran[f[0].Call] == 1) != again {
				t.Errorf("finished %+v, unknown %+v, ran %v", f, u, w.ran)
			}
			if slices.Contains(w.order, "outcome") {
				t.Errorf("asked for the outcome of a call that nobody had: %v", w.order)
			}
		})
	}
}
