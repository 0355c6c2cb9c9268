package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// on makes h call do once, on a new goroutine, when an event of this type is about to be recorded.
func (h *Host) on(typ holdfast.EventType, do func()) {
	done := false
	h.OnRecord = func(drafts []journal.Draft) error {
		if !done && slices.ContainsFunc(drafts, func(d journal.Draft) bool { return d.Type == typ }) {
			done = true
			go do()
		}
		return nil
	}
}

// testInterruptEnds checks that an interrupt ends the tool that an agent in the box runs, and
// that the next turn works.
func testInterruptEnds(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	h := w.NewHost()
	ctx, cancel := context.WithCancelCause(w.ctx())
	defer cancel(nil)
	h.on(holdfast.EventToolStarted, func() {
		Eventually(t, "the tool runs", func() bool { return len(w.lines("up.txt")) > 0 })
		cancel(errStop)
	})
	id := w.Begin(script(`[%s,{"say":"never"}]`, bash("echo up >> up.txt; sleep 1234; echo x >> a.txt")))
	ran := h.Run(ctx, r, w.Turn(id, false))
	if !errors.Is(ran.Err, errStop) {
		t.Fatalf("ended with %v", ran.Err)
	}
	w.CheckAnswered()
	w.ends(h, "1234")
	if w.lines("a.txt") != nil {
		t.Error("the tool went on")
	}
	w.End(id, holdfast.EventTurnInterrupted)
	h.Close()
	w.wantText(w.do(r, script(`[{"say":"usable"}]`)), "usable")
}

// ends waits until no process in the box has the word in its command line.
func (w *World) ends(h *Host, word string) {
	w.T.Helper()
	box, err := h.Box(w.ctx())
	if err != nil {
		w.T.Fatal(err)
	}
	Eventually(w.T, "the tool is gone", func() bool {
		ps, err := box.Processes(w.T.Context())
		if err != nil {
			w.T.Error(err)
			return true
		}
		return !strings.Contains(fmt.Sprint(ps), word)
	})
}

// testCutOffEnds checks that an interrupt at the next server ends the tools of an agent that a killed server left.
func testCutOffEnds(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	h.on(holdfast.EventToolStarted, func() {
		Eventually(t, "the tool runs", func() bool { return len(w.lines("up.txt")) > 0 })
		h.Kill()
	})
	id := w.Begin(script(`[%s,{"say":"never"}]`, bash("echo up >> up.txt; sleep 1234; echo x >> a.txt")))
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); !ran.Died {
		t.Fatalf("the server lives: %v", ran.Err)
	}
	h = w.NewHost()
	ctx, cancel := context.WithCancelCause(w.ctx())
	cancel(errStop)
	if ran := h.Run(ctx, cfg.New(t), w.Turn(id, true)); !errors.Is(ran.Err, errStop) {
		t.Fatalf("ended with %v", ran.Err)
	}
	w.CheckAnswered()
	w.ends(h, "1234")
	w.End(id, holdfast.EventTurnInterrupted)
	h.Close()
	w.wantText(w.do(cfg.New(t), script(`[{"say":"usable"}]`)), "usable")
}

// testJoins checks that a message that arrives while a tool runs reaches the agent within the same turn.
func testJoins(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	h := w.NewHost()
	var id holdfast.TurnID
	h.on(holdfast.EventToolStarted, func() {
		w.Steer(id, "and one more thing")
		_ = os.WriteFile(filepath.Join(w.Workspace(), "go"), nil, 0o666)
	})
	id = w.Begin(script(`[%s]`, bash("until [ -e go ]; do sleep 0.05; done; sleep 0.5")))
	ran := h.Run(w.ctx(), r, w.Turn(id, false))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	w.Complete(id, ran.Result)
	h.Close()
	steer := int64(0)
	for _, ev := range w.Events(0) {
		var m holdfast.UserMessage
		if ev.Type == holdfast.EventMessageUser && ev.Decode(&m) == nil && m.Steer {
			steer = ev.Seq
		}
	}
	if ran.Result.Seen < steer {
		t.Errorf("seen %d, the message is %d", ran.Result.Seen, steer)
	}
	if cfg.Told != nil && !cfg.Told("and one more thing") {
		t.Error("the model was never told of it")
	}
	// Not tested: how an agent passes a message that joined the turn to its model.
	if said := w.do(r, "well?").Text; !strings.HasPrefix(said, "You have sent ") || !strings.Contains(said, `The last was: "well?".`) {
		t.Errorf("afterwards the model said %s", said)
	}
}

func workScript() string {
	return script(`[{"think":"hm","say":"both","tools":[%s,%s]},{"say":"now","tools":[%s]},{"say":"done"}]`,
		bash("echo one >> a.txt"), bash("echo two >> a.txt"), bash("echo three >> a.txt"))
}

// memory returns the beginning of the scripted model's answer after n messages.
func memory(n int, first, last string) string {
	return fmt.Sprintf(`You have sent %d messages. The first was: "%s". The last was: "%s".`, n, first, last)
}

// remembers runs a turn and checks which messages the model remembers.
func (w *World) remembers(r runtime.Runtime, n int, first, text string) {
	w.T.Helper()
	if said := w.do(r, text).Text; !strings.HasPrefix(said, memory(n, first, text)) {
		w.T.Errorf("the model's answer is %s, want %s", said, memory(n, first, text))
	}
}

// receipt returns the newest event agent.started.
func (w *World) receipt() holdfast.AgentStarted {
	w.T.Helper()
	all := Payloads[holdfast.AgentStarted](w, holdfast.EventAgentStarted)
	if len(all) == 0 {
		w.T.Fatal("no agent was started")
	}
	return all[len(all)-1]
}

// starts returns how often an agent was started.
func (w *World) starts() int {
	w.T.Helper()
	n := 0
	for _, s := range Payloads[holdfast.AgentStarted](w, holdfast.EventAgentStarted) {
		if s.Tier != holdfast.TierLive {
			n++
		}
	}
	return n
}

// some returns n evenly spread points, with the first and the last; all points if there are at most n, or if n <= 1.
func some(points []Point, n int) []Point {
	if n <= 1 || len(points) <= n {
		return points
	}
	out := make([]Point, 0, n)
	for i := range n {
		out = append(out, points[i*(len(points)-1)/(n-1)])
	}
	return out
}

// testServerDies kills the server at the points that it passes, see Config.Points, while the box and the agent live.
func testServerDies(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(workScript())
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	h.Close()
	for _, p := range some(h.Points, cfg.Points) {
		t.Run(fmt.Sprint(p.Name, p.N), func(t *testing.T) {
			w := cfg.NewWorld(t)
			h := w.NewHost()
			h.Die = p
			id := w.Begin(workScript())
			ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false))
			if !ran.Died {
				if ran.Err != nil || slices.Contains(h.Points, p) {
					t.Fatalf("the server lives: %v", ran.Err)
				}
				return // this time the turn ended with fewer records, so the server was not killed
			}
			h = w.NewHost()
			r := cfg.New(t)
			ran = h.Run(w.ctx(), r, w.Turn(id, true))
			if ran.Err != nil || ran.Died {
				t.Fatalf("the turn ended with %v", ran.Err)
			}
			said := ran.Result
			said.Text = strings.TrimPrefix(said.Text, cfg.Lost)
			w.wantText(said, "done")
			w.Complete(id, ran.Result)
			h.Close()
			w.CheckAnswered()
			got := w.lines("a.txt")
			slices.Sort(got)
			if fmt.Sprint(got) != "[one three two]" {
				t.Errorf("the calls left %s", got)
			}
			if n := len(Payloads[holdfast.ToolUnknown](w, holdfast.EventToolUnknown)); n != 0 {
				t.Errorf("%d outcomes are unknown", n)
			}
			w.remembers(r, 2, workScript()[:60], "well?")
		})
	}
}

// testBoxDies kills the box while a tool runs in it. The turn may continue or fail, but nothing
// may run twice.
func testBoxDies(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	w.do(r, "first of all")
	h := w.NewHost()
	h.on(holdfast.EventToolStarted, func() {
		Eventually(t, "the tool runs", func() bool { return len(w.lines("a.txt")) > 0 })
		w.KillBox()
	})
	id := w.Begin(script(`[%s,{"say":"went on"}]`, bash("echo one >> a.txt; sleep 1234")))
	ran := h.Run(w.ctx(), r, w.Turn(id, false))
	switch {
	case ran.Died:
		t.Fatal("the server died")
	case ran.Err != nil:
		w.End(id, holdfast.EventTurnFailed)
	default:
		w.Complete(id, ran.Result)
	}
	h.Close()
	w.CheckAnswered()
	if got := w.lines("a.txt"); len(got) != 1 {
		t.Errorf("the call left %s", got)
	}
	said := w.do(r, "well?").Text
	if !strings.HasPrefix(said, "You have sent ") || !strings.Contains(said, `The first was: "first of all". The last was: "well?".`) {
		t.Errorf("afterwards the model said %s", said)
	}
	if got := w.lines("a.txt"); len(got) != 1 {
		t.Errorf("afterwards the call has left %s", got)
	}
}

func testBoxStops(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	w.remembers(cfg.New(t), 1, "first of all", "first of all")
	w.do(cfg.New(t), workScript())
	w.KillBox()
	w.remembers(cfg.New(t), 3, "first of all", "third")
	if got := w.receipt(); got.Turns != 2 || got.Of != 2 || got.Tier == holdfast.TierFresh || got.Tier == holdfast.TierLive || got.Reason == "" {
		t.Errorf("receipt %+v", got)
	}
	w.remembers(cfg.New(t), 4, "first of all", "fourth")
}

func testStateGone(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	w.do(cfg.New(t), "first of all")
	w.do(cfg.New(t), workScript())
	w.KillBox()
	home := filepath.Join(w.dir, "home")
	list, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(home, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	w.remembers(cfg.New(t), 3, "first of all", "third")
	got := w.receipt()
	if got.Turns != 2 || got.Of != 2 || got.Tier != holdfast.TierRebuilt && got.Tier != holdfast.TierInjected || got.Reason == "" {
		t.Errorf("receipt %+v", got)
	}
	w.remembers(cfg.New(t), 4, "first of all", "fourth")
}

func testToldWhatItMissed(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	elsewhere := func(text string) {
		id := w.Begin(text)
		w.Append(journal.Draft{Type: holdfast.EventMessageAssistant, Turn: id, Data: holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "said elsewhere"}}}})
		w.End(id, holdfast.EventTurnCompleted)
	}
	elsewhere("first of all")
	w.remembers(cfg.New(t), 2, "first of all", "second")
	if got := w.receipt(); got.Tier != holdfast.TierInjected || got.Turns != 1 || got.Of != 1 {
		t.Errorf("receipt %+v", got)
	}
	// The agent's process still runs, and receives the turns of the other runtime that it missed, once.
	elsewhere("third")
	w.remembers(cfg.New(t), 4, "first of all", "fourth")
	starts := w.starts()
	w.remembers(cfg.New(t), 5, "first of all", "fifth")
	if n := w.starts(); n != starts {
		t.Error("an agent that had missed nothing was started anew")
	}
	elsewhere("sixth")
	w.KillBox()
	w.remembers(cfg.New(t), 7, "first of all", "seventh")
	if got := w.receipt(); got.Turns != 6 || got.Of != 6 {
		t.Errorf("receipt %+v", got)
	}
	w.remembers(cfg.New(t), 8, "first of all", "eighth")
}
