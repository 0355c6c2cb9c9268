package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// patience is the longest time that a test waits for a condition.
const patience = 60 * time.Second

// script returns a message of the user that contains a script for the scripted model.
func script(format string, args ...any) string {
	return "<script>" + fmt.Sprintf(format, args...) + "</script>"
}

// bash returns a step of a script, in which the model calls the tool Bash with a command.
func bash(command string) string {
	b, _ := json.Marshal(command)
	return fmt.Sprintf(`{"tool":"Bash","input":{"command":%s}}`, b)
}

// do runs a turn that must succeed, and records its end.
func (w *World) do(r runtime.Runtime, text string) runtime.Result {
	w.T.Helper()
	h := w.NewHost()
	id := w.Begin(text)
	ran := h.Run(w.ctx(), r, w.Turn(id, false))
	if ran.Err != nil || ran.Died {
		w.T.Fatalf("the turn ended with %v", ran.Err)
	}
	w.Complete(id, ran.Result)
	h.Close()
	return ran.Result
}

func (w *World) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.T.Context(), patience)
	w.T.Cleanup(cancel)
	return ctx
}

// lines returns the lines of a file of the workspace.
func (w *World) lines(name string) []string {
	w.T.Helper()
	b, err := os.ReadFile(filepath.Join(w.Workspace(), name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return strings.Fields(string(b))
}

func (w *World) wantText(res runtime.Result, want string) {
	w.T.Helper()
	if res.Text != want {
		w.T.Errorf("the turn's result has the text %q, want %q", res.Text, want)
	}
}

func testTalks(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(script(`[{"say":"hello there","chunks":3,"usage":{"input_tokens":3,"output_tokens":4}}]`))
	before := len(w.Events(0))
	r := cfg.New(t)
	ran := h.Run(w.ctx(), r, w.Turn(id, false))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	res := ran.Result
	w.wantText(res, "hello there")
	if res.StopReason != "end_turn" || res.Steps != 1 || res.Usage != (holdfast.Usage{InputTokens: 3, OutputTokens: 4}) || res.Seen != 2 {
		t.Errorf("%+v", res)
	}
	if len(res.Final) == 0 || len(w.Events(0)) != before {
		t.Errorf("%d final entries, log of %d entries", len(res.Final), len(w.Events(0)))
	}
	if len(h.Deltas) != 3 {
		t.Errorf("deltas %v", h.Deltas)
	}
	if h.conn != nil {
		t.Error("a turn that only talks started a box")
	}
}

// testAnswers checks what every runtime does in a turn without tools.
func testAnswers(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(script(`[{"say":"hello there","chunks":3}]`))
	ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	w.wantText(ran.Result, "hello there")
	if ran.Result.StopReason != "end_turn" || ran.Result.Steps != 1 || ran.Result.Seen < 1 {
		t.Errorf("%+v", ran.Result)
	}
	w.Complete(id, ran.Result)
	if !slices.Contains(h.Deltas, holdfast.DeltaText) {
		t.Errorf("deltas %v", h.Deltas)
	}
	said := Payloads[holdfast.AssistantMessage](w, holdfast.EventMessageAssistant)
	if len(said) != 1 || len(said[0].Parts) != 1 || said[0].Parts[0].Text != "hello there" {
		t.Errorf("%+v", said)
	}
}

func testRemembers(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	w.do(r, "first of all")
	w.do(r, script(`[%s,{"say":"done"}]`, bash("true")))
	// Interrupted and failed turns are part of the conversation, too.
	for _, typ := range []holdfast.EventType{holdfast.EventTurnInterrupted, holdfast.EventTurnFailed} {
		w.End(w.Begin("and "+string(typ)), typ)
	}
	want := `You have sent 5 messages. The first was: "first of all". The last was: "last". I have seen 1 tool results.`
	w.wantText(w.do(r, "last"), want)
	// The runtime of another server remembers the same.
	want = strings.Replace(want, "5 messages", "6 messages", 1)
	w.wantText(w.do(cfg.New(t), "last"), want)
}

func testWorks(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	res := w.do(cfg.New(t), script(`[%s,{"tools":[{"tool":"Read","input":{"file_path":"a.txt"}},%s,{"tool":"Read","input":{"file_path":"a.txt"}}]},{"say":"done"}]`,
		bash("echo one >> a.txt"), bash("echo two >> a.txt")))
	w.wantText(res, "done")
	w.CheckAnswered()
	f := Payloads[holdfast.ToolFinished](w, holdfast.EventToolFinished)
	if len(f) != 4 {
		t.Fatalf("%d outcomes", len(f))
	}
	if strings.Contains(f[1].Content, "two") || !strings.Contains(f[1].Content, "one") || !strings.Contains(f[3].Content, "two") {
		t.Errorf("tools ran out of order: %+v", f)
	}
	for _, x := range f {
		if x.Outcome != holdfast.ExitOK || x.IsError {
			t.Errorf("%+v", x)
		}
	}
	if res.Steps != 3 {
		t.Errorf("%d steps", res.Steps)
	}
}

func testIntentBeforeAct(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(script(`[%s]`, bash("echo x >> a.txt")))
	intents := 0
	h.OnRecord = func(drafts []journal.Draft) error {
		for _, d := range drafts {
			switch d.Type {
			case holdfast.EventToolStarted:
				intents++
				if w.lines("a.txt") != nil {
					t.Error("the tool ran before its intent was recorded")
				}
			case holdfast.EventToolFinished:
				if len(w.lines("a.txt")) != 1 {
					t.Error("an outcome of a call that did not run")
				}
			}
		}
		return nil
	}
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	if intents != 1 {
		t.Errorf("%d intents", intents)
	}
}

func testReleaseAfterCommit(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(script(`[%s]`, bash("echo x >> a.txt")))
	h.OnRecord = func(drafts []journal.Draft) error {
		for _, d := range drafts {
			if d.Type != holdfast.EventToolFinished {
				continue
			}
			box, err := h.Box(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if calls, err := box.Calls(t.Context()); err != nil || len(calls) != 1 {
				t.Errorf("released before its outcome was recorded: %v %v", calls, err)
			}
		}
		return nil
	}
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	box, err := h.Box(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the call is released", func() bool {
		calls, err := box.Calls(t.Context())
		return err == nil && len(calls) == 0
	})
}

// Eventually checks a condition again and again until it holds.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func testDenies(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	w.Session.Mode = holdfast.ModePlan
	steps, denials := bash("echo x >> a.txt"), 1
	if !cfg.InBox {
		// Only for a loop in the server, the model also calls a tool that does not exist: an agent in the box
		// asks the server only about tools that exist.
		steps, denials = steps+`,{"tool":"NoSuchTool"}`, 2
	}
	w.wantText(w.do(cfg.New(t), script(`[%s,{"say":"done"}]`, steps)), "done")
	if w.lines("a.txt") != nil {
		t.Error("a denied tool ran")
	}
	w.CheckAnswered()
	if n := len(Payloads[holdfast.ToolDecision](w, holdfast.EventToolDenied)); n != denials {
		t.Errorf("%d denials", n)
	}
}

func testFails(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	h := w.NewHost()
	id := w.Begin(script(`[{"error":"invalid","times":20}]`))
	ran := h.Run(w.ctx(), r, w.Turn(id, false))
	if !holdfast.IsKind(ran.Err, holdfast.KindInvalid) {
		t.Errorf("ended with %v", ran.Err)
	}
	w.End(id, holdfast.EventTurnFailed)
	h.Close()
	w.wantText(w.do(r, script(`[{"say":"usable"}]`)), "usable")
}

var errStop = errors.New("the user interrupted the turn")

func testInterruptKills(t *testing.T, cfg Config) {
	if cfg.InBox {
		testInterruptEnds(t, cfg)
		return
	}
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	h := w.NewHost()
	ctx, cancel := context.WithCancelCause(w.ctx())
	defer cancel(nil)
	h.OnDelta = func(typ holdfast.EventType, _ any) {
		if typ == holdfast.DeltaToolOutput {
			cancel(errStop)
		}
	}
	id := w.Begin(script(`[{"tools":[%s,%s,{"tool":"Read","input":{"file_path":"a.txt"}}]},{"say":"never"}]`,
		bash("echo up; sleep 1000; echo x >> a.txt"), bash("echo y >> a.txt")))
	ran := h.Run(ctx, r, w.Turn(id, false))
	if !errors.Is(ran.Err, errStop) {
		t.Fatalf("ended with %v", ran.Err)
	}
	w.CheckAnswered()
	f := Payloads[holdfast.ToolFinished](w, holdfast.EventToolFinished)
	if len(f) != 3 || f[0].Outcome != holdfast.ExitCanceled || f[1].Outcome != holdfast.ExitCanceled || w.lines("a.txt") != nil {
		t.Errorf("%+v", f)
	}
	w.noProcess(h)
	w.End(id, holdfast.EventTurnInterrupted)
	w.wantText(w.do(r, script(`[{"say":"usable"}]`)), "usable")
}

// noProcess waits until no process of a tool call runs in the box.
func (w *World) noProcess(h *Host) {
	w.T.Helper()
	box, err := h.Box(w.ctx())
	if err != nil {
		w.T.Fatal(err)
	}
	Eventually(w.T, "no process is left in the box", func() bool {
		ps, err := box.Processes(w.T.Context())
		if err != nil {
			w.T.Fatal(err)
		}
		for _, p := range ps {
			if p.Call != "" {
				return false
			}
		}
		return true
	})
}

func testInterruptCutOff(t *testing.T, cfg Config) {
	if cfg.InBox {
		testCutOffEnds(t, cfg)
		return
	}
	w := cfg.NewWorld(t)
	h := w.NewHost()
	h.OnDelta = func(typ holdfast.EventType, _ any) {
		if typ == holdfast.DeltaToolOutput {
			h.Kill()
		}
	}
	id := w.Begin(script(`[%s]`, bash("echo up; sleep 1000")))
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); !ran.Died {
		t.Fatalf("the server lives: %v", ran.Err)
	}
	h = w.NewHost()
	ctx, cancel := context.WithCancelCause(w.ctx())
	cancel(errStop)
	ran := h.Run(ctx, cfg.New(t), w.Turn(id, true))
	if !errors.Is(ran.Err, errStop) {
		t.Fatalf("ended with %v", ran.Err)
	}
	w.CheckAnswered()
	w.noProcess(h)
}

func testSteers(t *testing.T, cfg Config) {
	if cfg.InBox {
		testJoins(t, cfg)
		return
	}
	w := cfg.NewWorld(t)
	r := cfg.New(t)
	h := w.NewHost()
	var id holdfast.TurnID
	h.OnAt = func(point string) {
		if point == "finished-uncommitted" {
			w.Steer(id, script(`[{"say":"steered"}]`))
		}
	}
	id = w.Begin(script(`[%s,{"say":"not steered"}]`, bash("true")))
	ran := h.Run(w.ctx(), r, w.Turn(id, false))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	w.wantText(ran.Result, "steered")
	w.End(id, holdfast.EventTurnCompleted, ran.Result.Final...)
	// A new runtime, which reads the log, puts the steered message at the same place.
	for _, r := range []runtime.Runtime{r, cfg.New(t)} {
		w.wantText(w.do(r, "now"), fmt.Sprintf(`You have sent %d messages. The first was: "%s". The last was: "now". I have seen 1 tool results.`,
			2+len(Payloads[holdfast.UserMessage](w, holdfast.EventMessageUser))-2, script(`[%s,{"say":"not steered"}]`, bash("true"))[:60]))
	}
}

func testSteeredAtTheEnd(t *testing.T, cfg Config) {
	for _, recorded := range []bool{true, false} {
		w := cfg.NewWorld(t)
		r := cfg.New(t)
		h := w.NewHost()
		id := w.Begin(script(`[{"say":"one"}]`))
		ran := h.Run(w.ctx(), r, w.Turn(id, false))
		if ran.Err != nil {
			t.Fatal(ran.Err)
		}
		w.Steer(id, "wait, one more thing")
		if recorded {
			w.Append(ran.Result.Final...)
		}
		ran = h.Run(w.ctx(), r, w.Turn(id, true))
		if ran.Err != nil {
			t.Fatal(ran.Err)
		}
		w.wantText(ran.Result, `You have sent 2 messages. The first was: "<script>[{"say":"one"}]</script>". The last was: "wait, one more thing". I have seen 0 tool results.`)
		if ran.Result.Seen < 3 {
			t.Errorf("seen %d", ran.Result.Seen)
		}
		if want := map[bool]int{true: 2, false: 1}[recorded]; ran.Result.Steps != want {
			t.Errorf("%d steps, want %d", ran.Result.Steps, want)
		}
	}
}

// testEndedRunAgain runs a turn whose answer is in the log, but whose end is not, because the
// server died in between.
func testEndedRunAgain(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(script(`[{"say":"one","usage":{"input_tokens":1,"output_tokens":2}}]`))
	ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false))
	w.Append(ran.Result.Final...)
	before := len(w.Events(0))
	again := h.Run(w.ctx(), cfg.New(t), w.Turn(id, true))
	if again.Err != nil {
		t.Fatal(again.Err)
	}
	w.wantText(again.Result, "one")
	if len(again.Result.Final) != 0 || again.Result.Usage != ran.Result.Usage || again.Result.Steps != 1 || len(w.Events(0)) != before {
		t.Errorf("%+v", again.Result)
	}
}

func testBoxDiesMidCall(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	killed := false
	h.OnDelta = func(typ holdfast.EventType, _ any) {
		if typ == holdfast.DeltaToolOutput && !killed {
			killed = true
			w.KillBox()
		}
	}
	id := w.Begin(script(`[{"tools":[%s,%s]},{"say":"went on"}]`, bash("echo up; sleep 1000"), bash("echo two >> a.txt")))
	ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	w.wantText(ran.Result, "went on")
	w.CheckAnswered()
	if n := len(Payloads[holdfast.ToolUnknown](w, holdfast.EventToolUnknown)); n != 1 || len(w.lines("a.txt")) != 1 {
		t.Errorf("%d unknown, lines %v", n, w.lines("a.txt"))
	}
}

func testRecordError(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	full := holdfast.Errorf(holdfast.KindUnavailable, "store", "disk full")
	h.OnRecord = func([]journal.Draft) error { return full }
	id := w.Begin(script(`[%s]`, bash("echo x >> a.txt")))
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); !errors.Is(ran.Err, full) {
		t.Errorf("ended with %v", ran.Err)
	}
	if w.lines("a.txt") != nil {
		t.Error("a tool ran without a recorded intent")
	}
}

func testUnknownTurn(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	w.do(cfg.New(t), "hello")
	h := w.NewHost()
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn("01890a5d-ac96-774b-bcce-ffffffffffff", false)); !holdfast.IsKind(ran.Err, holdfast.KindInternal) {
		t.Errorf("ended with %v", ran.Err)
	}
}
