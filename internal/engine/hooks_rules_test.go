package engine_test

import (
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
)

// TestSDKH25_HooksChangeTheRules: what one hook forbids stays forbidden for the rest
// of the session, after a restart too; a later one does not take it back. It makes
// no difference which event the hook was for.
func TestSDKH25_HooksChangeTheRules(t *testing.T) {
	for _, event := range []hook.Event{hook.PreToolUse, hook.PostToolUse} {
		behavior := "deny"
		var mu sync.Mutex
		e := &ear{answer: func(in hook.Input) *hook.Output {
			mu.Lock()
			defer mu.Unlock()
			return &hook.Output{Rules: []holdfast.RuleChange{{Scope: holdfast.ScopeSession, Behavior: behavior, Rule: "Bash"}}}
		}}
		m := listening(t, e, nil, event)
		id := m.create(holdfast.CreateSession{})
		m.run(id, script(bash("echo 1 >> f"), bash("echo 2 >> f"), say("a")))
		mu.Lock()
		behavior = "allow"
		mu.Unlock()
		m.restart()
		m.run(id, script(step{"tool": "LS", "input": step{"path": "."}}, bash("echo 3 >> f"), say("b")))
		if got := m.file(id, "f"); got != "1\n" {
			t.Errorf("%s: f is %q\n%s", event, got, m.dump(id))
		}
		changed := datas[holdfast.RulesChanged](m.world, id, holdfast.EventRulesChanged)
		if len(changed) == 0 || changed[0].By != "hook" || changed[0].Changes[0].Rule != "Bash" {
			t.Errorf("%s: changes %+v\n%s", event, changed, m.dump(id))
		}
	}
}

// TestPermissionRequestFires: hooks may answer what a person would be asked, and
// only that.
// It is an event of SDK-H0.
func TestPermissionRequestFires(t *testing.T) {
	for verdict, want := range map[policy.Verdict]string{policy.Allowed: "x\n", policy.NoOpinion: "", policy.Denied: ""} {
		e := &ear{answer: func(in hook.Input) *hook.Output { return &hook.Output{Verdict: verdict, Reason: "so be it"} }}
		m := listening(t, e, nil, hook.PermissionRequest)
		id := m.create(holdfast.CreateSession{Mode: "default"})
		m.run(id, script(step{"tool": "LS", "input": step{"path": "."}}, bash("echo x > f"), say("over")))
		if got := e.of(hook.PermissionRequest); len(got) != 1 || got[0].ToolName != "Bash" || got[0].Message == "" {
			t.Errorf("%s: told %+v", verdict, got)
		}
		if got := m.file(id, "f"); got != want {
			t.Errorf("%s: f is %q\n%s", verdict, got, m.dump(id))
		}
	}
}

// TestHooksRunOnceAroundAQuestion: a server that dies while a person is asked does
// not run the hooks before the question again; that somebody is asked is told.
func TestHooksRunOnceAroundAQuestion(t *testing.T) {
	e := &ear{answer: func(in hook.Input) *hook.Output {
		if in.Event == hook.PreToolUse {
			return &hook.Output{Context: []string{"mind the gap"}}
		}
		return nil
	}}
	m := listening(t, e, func(m *machine) {
		inner := m.set
		m.set = func(c *engine.Config) {
			inner(c)
			c.Turns.ApprovalTimeout = 0
		}
	}, hook.PreToolUse, hook.PermissionRequest, hook.Notify)
	id := m.asks()
	turn := m.send(id, script(bash(touch), say("done")))
	m.pending(id)
	until(t, func() bool { return len(e.of(hook.Notify)) == 1 })
	m.restart()
	a := m.pending(id)
	m.answer(a, allow)
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 1 {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	for _, event := range []hook.Event{hook.PreToolUse, hook.PermissionRequest, hook.Notify} {
		if n := len(e.of(event)); n != 1 {
			t.Errorf("%s fired %d times\n%s", event, n, m.dump(id))
		}
	}
	if in := e.of(hook.Notify)[0]; in.Trigger != "approval" || in.ToolName != "Bash" {
		t.Errorf("told %+v", in)
	}
}
