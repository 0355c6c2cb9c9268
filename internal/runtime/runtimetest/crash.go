package runtimetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// crashScript is a turn with all kinds of steps: two calls in one answer, reading tools, a
// denied one, a failing model call.
func crashScript() string {
	return script(`[{"think":"hm","tools":[%s,%s]},{"error":"overloaded"},{"say":"now","tools":[{"tool":"Read","input":{"file_path":"a.txt"}},{"tool":"Nope"},%s]},{"tool":"Read","input":{"file_path":"a.txt"}},{"say":"done"}]`,
		bash("echo one >> a.txt"), bash("echo two >> a.txt"), bash("echo three >> a.txt"))
}

// points returns all points of a turn at which a server can die.
func points(t *testing.T, cfg Config) []Point {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	id := w.Begin(crashScript())
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	h.Close()
	names := map[string]int{}
	for _, p := range h.Points {
		names[p.Name]++
	}
	for _, n := range []string{BeforeRecord, AfterRecord, "intent", "spawned", "finished-uncommitted", "committed-unreleased"} {
		if names[n] == 0 {
			t.Fatalf("no point %s was passed: %v", n, names)
		}
	}
	return h.Points
}

// testCrashEverywhere kills the server at every point, while the box lives. The next server ends
// the turn; nothing ran twice, was lost or is unknown.
func testCrashEverywhere(t *testing.T, cfg Config) {
	for _, p := range points(t, cfg) {
		t.Run(fmt.Sprint(p.Name, p.N), func(t *testing.T) {
			w := cfg.NewWorld(t)
			id, died := w.crash(cfg, p)
			if !died {
				return
			}
			w.again(cfg, id)
			if got := fmt.Sprint(w.lines("a.txt")); got != "[one two three]" {
				t.Errorf("the calls left %s", got)
			}
			if n := len(Payloads[holdfast.ToolUnknown](w, holdfast.EventToolUnknown)); n != 0 {
				t.Errorf("%d outcomes are unknown", n)
			}
			w.wantText(w.do(cfg.New(t), "well?"), fmt.Sprintf(
				`You have sent 2 messages. The first was: "%s". The last was: "well?". I have seen 6 tool results.`, crashScript()[:60]))
		})
	}
}

// crash begins the turn on a server that dies at a point. A slow machine makes records that a
// fast one does not, so the turn may end before the point is reached; then died is false.
func (w *World) crash(cfg Config, p Point) (id holdfast.TurnID, died bool) {
	w.T.Helper()
	h := w.NewHost()
	h.Die = p
	id = w.Begin(crashScript())
	ran := h.Run(w.ctx(), cfg.New(w.T), w.Turn(id, false))
	if !ran.Died && (ran.Err != nil || slices.Contains(h.Points, p)) {
		w.T.Fatalf("the server lives: %v", ran.Err)
	}
	return id, ran.Died
}

// again runs the turn on the next server, which must end it.
func (w *World) again(cfg Config, id holdfast.TurnID) {
	w.T.Helper()
	h := w.NewHost()
	ran := h.Run(w.ctx(), cfg.New(w.T), w.Turn(id, true))
	if ran.Err != nil || ran.Died {
		w.T.Fatalf("the turn ended with %v", ran.Err)
	}
	w.wantText(ran.Result, "done")
	if ran.Result.Steps != 4 {
		w.T.Errorf("the whole turn took %d model calls, want 4", ran.Result.Steps)
	}
	w.End(id, holdfast.EventTurnCompleted, ran.Result.Final...)
	h.Close()
	w.CheckAnswered()
}

// testCrashWithTheBox kills the box together with the server, at every point. The outcomes of
// the calls that were in progress are unknown, and no others.
func testCrashWithTheBox(t *testing.T, cfg Config) {
	for _, p := range points(t, cfg) {
		t.Run(fmt.Sprint(p.Name, p.N), func(t *testing.T) {
			w := cfg.NewWorld(t)
			id, died := w.crash(cfg, p)
			if !died {
				return
			}
			open := map[holdfast.CallID]bool{}
			for _, s := range Payloads[holdfast.ToolStarted](w, holdfast.EventToolStarted) {
				open[s.Call] = true
			}
			for _, f := range Payloads[holdfast.ToolFinished](w, holdfast.EventToolFinished) {
				delete(open, f.Call)
			}
			w.KillBox()
			w.again(cfg, id)
			lines := map[string]int{}
			for _, l := range w.lines("a.txt") {
				lines[l]++
			}
			for l, n := range lines {
				if n != 1 {
					t.Errorf("%s ran %d times", l, n)
				}
			}
			unknown := Payloads[holdfast.ToolUnknown](w, holdfast.EventToolUnknown)
			for _, u := range unknown {
				if !open[u.Call] {
					t.Errorf("call %s was not in flight", u.Call)
				}
			}
			if len(unknown) != len(open) || len(lines)+len(unknown) < 3 {
				t.Errorf("%d in flight, %d unknown, lines %v", len(open), len(unknown), lines)
			}
		})
	}
}

// testCrashWhileRunning kills the server while a process of the call runs. The next server gets
// the call's outcome.
func testCrashWhileRunning(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	h := w.NewHost()
	h.OnDelta = func(typ holdfast.EventType, _ any) {
		if typ == holdfast.DeltaToolOutput {
			h.Kill()
		}
	}
	id := w.Begin(script(`[%s,{"say":"done"}]`, bash("echo up; echo one >> a.txt; sleep 0.3; echo two >> a.txt; echo over")))
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, false)); !ran.Died {
		t.Fatalf("the server lives: %v", ran.Err)
	}
	h = w.NewHost()
	ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, true))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	w.wantText(ran.Result, "done")
	w.CheckAnswered()
	f := Payloads[holdfast.ToolFinished](w, holdfast.EventToolFinished)
	if len(f) != 1 || f[0].Outcome != holdfast.ExitOK || f[0].Content != "up\nover\n" && f[0].Content != "up\nover" {
		t.Errorf("%+v", f)
	}
	if got := fmt.Sprint(w.lines("a.txt")); got != "[one two]" {
		t.Errorf("the call left %s", got)
	}
}

func testReissueNotice(t *testing.T, cfg Config) {
	w := cfg.NewWorld(t)
	id := w.Begin(script(`[{"say":"done"}]`))
	h := w.NewHost()
	if ran := h.Run(w.ctx(), cfg.New(t), w.Turn(id, true)); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	n := Payloads[holdfast.Notice](w, holdfast.EventNotice)
	if len(n) != 1 || n[0].Code != "model.reissued" {
		t.Errorf("%+v", n)
	}
}

// testAnyPrefixGoesOn cuts the log after each of its events but the first, also in the middle of a record of several,
// and removes the box. From each such log the turn must still come to its end, with every tool use answered and
// no call made again.
func testAnyPrefixGoesOn(t *testing.T, cfg Config) {
	whole := cfg.NewWorld(t)
	h := whole.NewHost()
	id := whole.Begin(crashScript())
	ran := h.Run(whole.ctx(), cfg.New(t), whole.Turn(id, false))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	whole.Append(ran.Result.Final...)
	log := whole.Events(0)
	for n := 2; n <= len(log); n++ {
		t.Run(fmt.Sprint(n, " ", log[n-1].Type), func(t *testing.T) {
			w := cfg.NewWorld(t)
			w.Session.ID, w.log, w.turns = whole.Session.ID, log[:n:n], 1
			w.borned = whole.borned
			calls := len(Payloads[holdfast.ToolStarted](w, holdfast.EventToolStarted))
			r := cfg.New(t)
			h := w.NewHost()
			ran := h.Run(w.ctx(), r, w.Turn(id, true))
			if ran.Err != nil {
				t.Fatal(ran.Err)
			}
			w.wantText(ran.Result, "done")
			w.CheckAnswered()
			w.End(id, holdfast.EventTurnCompleted, ran.Result.Final...)
			h.Close()
			if ran := len(w.lines("a.txt")); ran > 3-calls {
				t.Errorf("%d calls were in the log, %d were made after it", calls, ran)
			}
			for _, r := range []runtime.Runtime{r, cfg.New(t)} {
				if said := w.do(r, "well?").Text; !strings.HasPrefix(said, "You have sent ") || strings.Contains(said, "have seen 0") {
					t.Errorf("afterwards the model said %s", said)
				}
			}
		})
	}
}
