package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// TestSDKP15_BothInputsAreKept: a tool runs with the input that it was given instead,
// and the log has what was asked for and what ran.
func TestSDKP15_BothInputsAreKept(t *testing.T) {
	w := newWorld(t)
	w.decide = func(policy.Request) (policy.Decision, error) {
		d := policy.AllowInput(json.RawMessage(`{"file_path":"safe"}`))
		d.By = "callback"
		return d, nil
	}
	l := w.loop()
	p := &request{Provider: l.Provider}
	l.Provider = p
	if _, err := l.Run(t.Context(), script(`[{"tool":"Read","input":{"file_path":"secret"}},{"say":"x"}]`), w.env()); err != nil {
		t.Fatal(err)
	}
	if asked := entries[holdfast.ToolRequested](w); len(asked) != 1 || string(asked[0].Input) != `{"file_path":"secret"}` {
		t.Errorf("requested %+v", asked)
	}
	if ran := entries[holdfast.ToolDecision](w); len(ran) != 1 || string(ran[0].Input) != `{"file_path":"safe"}` || ran[0].By != "callback" {
		t.Errorf("allowed %+v", ran)
	}
	if got := p.reqs[1].Messages[2].Blocks[0].Text; got != `Read{"file_path":"safe"}` {
		t.Errorf("it ran as %s", got)
	}
	w.check()
}
