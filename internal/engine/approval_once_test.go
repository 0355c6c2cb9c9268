package engine_test

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// TestHZ15_AnAnswerCountsForOneCall: a call that bears the id and the input of one
// that was answered is asked for anew, and so is one with the id and another input.
func TestHZ15_AnAnswerCountsForOneCall(t *testing.T) {
	d := newDecider("Bash", `{"command":"ls"}`)
	d.ask.CallID = "toolu_1"
	w := newWorld(t, d, nil)
	id := w.create(holdfast.CreateSession{Mode: string(holdfast.ModeDefault)})
	turn := w.send(id, "go")
	m := &machine{world: w}
	seen := map[holdfast.ApprovalID]bool{}
	for i, input := range []string{`{"command":"ls"}`, `{"command":"ls"}`, `{"command":"ls -l"}`, `{"command":"ls"}`} {
		d.ask.Input = []byte(input)
		d.steps <- struct{}{}
		a := m.pending(id)
		if seen[a.ID] || string(a.Input) != input {
			t.Errorf("call %d: %+v", i, a)
		}
		seen[a.ID] = true
		req, want := allow, policy.Allowed
		if i == 2 {
			req, want = deny, policy.Denied
		}
		m.answer(a, req)
		<-d.done
		if got := d.got[i]; got.Verdict != want {
			t.Errorf("call %d: %+v", i, got)
		}
	}
	close(d.steps)
	w.ended(id, turn.ID)
}
