package acp_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/policy"
)

// judge is a host that decides by itself, and keeps the inputs that it was asked about.
type judge struct {
	*runtimetest.Host
	denies string
	// rules, if set, makes the decisions.
	rules func(context.Context, policy.Request) (policy.Decision, error)
	// asked is called for each input before the decision.
	asked func(input string)

	mu     sync.Mutex
	inputs []string
}

func (j *judge) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	if j.asked != nil {
		j.asked(string(req.Input))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inputs = append(j.inputs, string(req.Input))
	if j.rules != nil {
		return j.rules(ctx, req)
	}
	if j.denies != "" && strings.Contains(string(req.Input), j.denies) {
		return policy.Decision{Verdict: policy.Denied, By: "test", Reason: "it is denied here"}, nil
	}
	return policy.Decision{Verdict: policy.Allowed, By: "test"}, nil
}

// judged runs a turn whose calls j decides.
func (r *rig) judged(text string, j *judge) error {
	r.t.Helper()
	j.Host = r.NewHost()
	defer j.Host.Close()
	id := r.Begin(text)
	res, err := r.r.Run(r.t.Context(), r.Turn(id, false), j)
	if err != nil {
		r.End(id, holdfast.EventTurnFailed)
	} else {
		r.Complete(id, res)
	}
	return err
}

// answers are the options that the agent got for its permission requests.
func (r *rig) answers() string {
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(r.file("answered")), "\n") {
		switch {
		case strings.Contains(line, `"optionId":"y"`):
			out = append(out, "yes")
		case strings.Contains(line, `"optionId":"n"`):
			out = append(out, "no")
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, " ")
}

// TestFurtherRequestsAreDecided: a permission request for a call that was allowed already is decided if it has other paths
// or another input, and is answered at once if it has not.
func TestFurtherRequestsAreDecided(t *testing.T) {
	for denies, want := range map[string]string{
		"":             "yes yes yes yes yes",
		"/workspace/b": "yes yes no no no",
		"/workspace/c": "yes yes yes no no",
		"secret":       "yes yes yes yes no",
	} {
		r, j := scriptedAgent(t, nil), &judge{denies: denies}
		if err := r.judged("FURTHER", j); err != nil {
			t.Fatal(err)
		}
		if got := r.answers(); got != want {
			t.Errorf("%q is denied: answered %s, want %s; judged %q", denies, got, want, j.inputs)
		}
		r.CheckAnswered()
	}
}

// TestALateDecisionHoldsForItsPathsOnly: a path that comes while a call is being decided is decided as well.
func TestALateDecisionHoldsForItsPathsOnly(t *testing.T) {
	r := scriptedAgent(t, nil)
	seen := make(chan struct{})
	j := &judge{denies: "/workspace/b"}
	first := sync.OnceFunc(func() {
		r.write("deciding")
		<-seen
	})
	j.asked = func(string) { first() }
	told := sync.OnceFunc(func() { close(seen) })
	j.Host = r.NewHost()
	defer j.Host.Close()
	j.Host.OnDelta = func(_ holdfast.EventType, data any) {
		if d, ok := data.(holdfast.TextDelta); ok && d.Text == "seen" {
			told()
		}
	}
	id := r.Begin("MEANWHILE")
	res, err := r.r.Run(t.Context(), r.Turn(id, false), j)
	if err != nil {
		t.Fatal(err)
	}
	r.Complete(id, res)
	if got := r.answers(); got != "no" {
		t.Errorf("answered %s; judged %q", got, j.inputs)
	}
}

// TestLongInputsAreJudgedWhole: the end of a long command is judged like its beginning.
func TestLongInputsAreJudgedWhole(t *testing.T) {
	for _, size := range []string{"10", "100000", "3000000"} {
		r, j := scriptedAgent(t, nil), &judge{denies: "rm all"}
		if err := r.judged("WORDY "+size+" ", j); err != nil {
			t.Fatal(err)
		}
		if got := r.answers(); got != "no" {
			t.Errorf("%s: answered %s", size, got)
		}
		if n := len(runtimetest.Payloads[holdfast.ToolDecision](r.World, holdfast.EventToolDenied)); n != 1 {
			t.Errorf("%s: %d denials", size, n)
		}
	}
}

// TestUnfinishedCallsAreBounded: an agent that begins calls without end fails its turn.
func TestUnfinishedCallsAreBounded(t *testing.T) {
	r := scriptedAgent(t, nil)
	if ran := r.try("CROWD"); !holdfast.IsKind(ran.Err, holdfast.KindTooLarge) {
		t.Errorf("ended with %v", ran.Err)
	}
	r.say("after", "prompt 1")
}
