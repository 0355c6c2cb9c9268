package claude_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestHZ12_APromptThatNobodyRecorded: a server dies with a prompt sent of which the state
// knows nothing, while the CLI is at it or when it is done. The next one says the same
// again, and the CLI answers once.
func TestHZ12_APromptThatNobodyRecorded(t *testing.T) {
	const script = `<script>[{"say":"the second answer","delay_ms":300}]</script>`
	for _, k := range []struct {
		name string
		// record is which of the turn's records is never made, until what it waits for.
		record int
		until  func(cfg runtimetest.Config, w *runtimetest.World) bool
		// live: the CLI had a turn before.
		live bool
	}{
		{"First", 1, asked("the second answer"), false},
		{"Live", 0, asked("the second answer"), true},
		{"Answered", 0, transcribed("the second answer"), true},
	} {
		t.Run(k.name, func(t *testing.T) {
			cfg := realCLI(t, nil)
			w := cfg.NewWorld(t)
			said := 1
			if k.live {
				said++
				if ran := runOne(t, cfg, w, "one", t.Context()); ran.Err != nil {
					t.Fatal(ran.Err)
				}
			}
			id := dieBefore(t, cfg, w, k.record, script, func() bool { return k.until(cfg, w) })
			h := w.NewHost()
			ran := h.Run(t.Context(), cfg.New(t), w.Turn(id, true))
			if ran.Err != nil || ran.Result.Text != "the second answer" || ran.Result.Steps != 1 {
				t.Fatalf("%v %+v", ran.Err, ran.Result)
			}
			w.Complete(id, ran.Result)
			h.Close()
			if n := len(runtimetest.Payloads[holdfast.AssistantMessage](w, holdfast.EventMessageAssistant)); n != said {
				t.Errorf("%d answers", n)
			}
			want := fmt.Sprintf("You have sent %d messages.", said+1)
			if ran := runOne(t, cfg, w, "and?", t.Context()); ran.Err != nil || !strings.HasPrefix(ran.Result.Text, want) {
				t.Errorf("afterwards: %v %q", ran.Err, ran.Result.Text)
			}
			if got := runtimetest.Payloads[holdfast.AgentStarted](w, holdfast.EventAgentStarted); got[len(got)-1].Tier != holdfast.TierLive {
				t.Errorf("receipts %+v", got)
			}
		})
	}
}

// TestHZ12_APromptOfATurnThatIsOver: a turn that ends with no server knowing that its
// prompt was sent leaves the CLI at work on it. The next turn does not take it over.
func TestHZ12_APromptOfATurnThatIsOver(t *testing.T) {
	cfg := realCLI(t, nil)
	w := cfg.NewWorld(t)
	if ran := runOne(t, cfg, w, "one", t.Context()); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	id := dieBefore(t, cfg, w, 0, `<script>[{"say":"nobody waits for this","delay_ms":600000}]</script>`,
		func() bool { return cfg.Told("nobody waits for this") })
	w.End(id, holdfast.EventTurnInterrupted)
	ran := runOne(t, cfg, w, `<script>[{"say":"the third answer"}]</script>`, t.Context())
	if ran.Err != nil || ran.Result.Text != "the third answer" {
		t.Fatalf("%v %+v", ran.Err, ran.Result)
	}
	got := runtimetest.Payloads[holdfast.AgentStarted](w, holdfast.EventAgentStarted)
	if last := got[len(got)-1]; last.Tier == holdfast.TierLive || last.Turns != 1 || last.Of != 1 {
		t.Errorf("receipt %+v", last)
	}
	if ran := runOne(t, cfg, w, "and?", t.Context()); ran.Err != nil || !strings.Contains(ran.Result.Text, `The first was: "one". The last was: "and?".`) {
		t.Errorf("afterwards: %v %q", ran.Err, ran.Result.Text)
	}
}

// TestAnotherProcessIsToldAgain: the CLI dies with its box and the server when it has answered
// and nobody recorded it. The one that goes on from its transcript, where both stand, is told the
// message under another name, which it does not pass over.
func TestAnotherProcessIsToldAgain(t *testing.T) {
	cfg := realCLI(t, nil)
	w := cfg.NewWorld(t)
	if ran := runOne(t, cfg, w, "one", t.Context()); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	id := dieBefore(t, cfg, w, 0, `<script>[{"say":"the second answer"}]</script>`, func() bool { return transcribed("the second answer")(cfg, w) })
	w.KillBox()
	h := w.NewHost()
	ran := h.Run(t.Context(), cfg.New(t), w.Turn(id, true))
	if ran.Err != nil || ran.Result.Text != "the second answer" {
		t.Fatalf("%v %+v", ran.Err, ran.Result)
	}
	if got := runtimetest.Payloads[holdfast.AgentStarted](w, holdfast.EventAgentStarted); got[len(got)-1].Tier != holdfast.TierOwn {
		t.Errorf("receipts %+v", got)
	}
}

// dieBefore begins a turn on a server that dies before it makes its nth record, when it
// has seen what it waits for.
func dieBefore(t *testing.T, cfg runtimetest.Config, w *runtimetest.World, n int, text string, seen func() bool) holdfast.TurnID {
	t.Helper()
	h := w.NewHost()
	h.Die = runtimetest.Point{Name: runtimetest.BeforeRecord, N: n}
	records := 0
	h.OnRecord = func([]journal.Draft) error {
		if records++; records == n+1 {
			runtimetest.Eventually(t, "the CLI has the prompt", seen)
		}
		return nil
	}
	id := w.Begin(text)
	if ran := h.Run(t.Context(), cfg.New(t), w.Turn(id, false)); !ran.Died {
		t.Fatalf("the server lives: %v", ran.Err)
	}
	h.Close()
	return id
}

// asked: the model was told a message.
func asked(text string) func(runtimetest.Config, *runtimetest.World) bool {
	return func(cfg runtimetest.Config, _ *runtimetest.World) bool { return cfg.Told(text) }
}

// transcribed: the CLI's transcript holds an answer.
func transcribed(text string) func(runtimetest.Config, *runtimetest.World) bool {
	return func(_ runtimetest.Config, w *runtimetest.World) bool {
		for _, f := range testkit.Glob(filepath.Join(w.Workspace(), "..", "home", ".claude"), "projects/-workspace/*.jsonl") {
			raw, _ := os.ReadFile(f)
			if strings.Contains(string(raw), `"text":"`+text) {
				return true
			}
		}
		return false
	}
}
