package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
)

// TestSDKH35_SessionEndFires: a session that ends after a success, an error, an
// interrupt, or over its budget, or in the middle of a turn, fires the hook once.
func TestSDKH35_SessionEndFires(t *testing.T) {
	for name, c := range map[string]struct {
		budget *holdfast.Budget
		text   string
		want   holdfast.TurnStatus
	}{
		"success": {nil, script(say("well")), holdfast.TurnCompleted},
		"error":   {nil, "<script>nonsense</script>", holdfast.TurnFailed},
		"cancel":  {nil, script(bash("echo > begun; sleep 1000")), holdfast.TurnInterrupted},
		"budget":  {&holdfast.Budget{Tokens: 1}, script(say("too much")), holdfast.TurnFailed},
		"midway":  {nil, script(bash("echo > begun; sleep 1000")), holdfast.TurnInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &ear{}
			m := listening(t, e, nil, hook.Stop, hook.SessionEnd)
			id := m.create(holdfast.CreateSession{Budget: c.budget})
			turn := m.send(id, c.text)
			if c.want == holdfast.TurnInterrupted {
				m.appears(id, "begun")
			}
			if name == "cancel" {
				if _, err := m.Interrupt(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if name != "midway" {
				m.ended(id, turn.ID)
				until(t, func() bool { return len(e.of(hook.Stop)) == 1 })
				if n := len(e.of(hook.SessionEnd)); n != 0 {
					t.Errorf("sessionEnd fired %d times before the end", n)
				}
			}
			if _, err := m.End(t.Context(), id, holdfast.EndSession{Interrupt: true}); err != nil {
				t.Fatal(err)
			}
			if got := m.ended(id, turn.ID); got.Status != c.want {
				t.Errorf("turn = %+v", got)
			}
			if len(e.of(hook.SessionEnd)) == 0 {
				t.Fatal("the session is over, and sessionEnd did not fire")
			}
			until(t, func() bool { return len(e.of(hook.Stop)) > 0 })
			if ends, stops := e.of(hook.SessionEnd), e.of(hook.Stop); len(ends) != 1 || ends[0].Session != id || len(stops) != 1 {
				t.Errorf("sessionEnd %+v, stop %+v", ends, stops)
			}
		})
	}
}

// TestSDKH15_FieldsHaveAProducer: some event of a server fills each input field that
// the specification names, except for those of events that do not fire yet.
func TestSDKH15_FieldsHaveAProducer(t *testing.T) {
	e := &ear{}
	base, err := policy.New(policy.Config{Callback: policy.Func(func(_ context.Context, req policy.Request) (policy.Decision, error) {
		if !strings.Contains(string(req.Input), "asked") {
			return policy.Decision{}, nil
		}
		d := policy.Ask("sure?")
		d.Updates = []policy.Update{rulesOf(policy.ToSession, policy.AddRules, "allow", "Bash(echo *)")}
		return d, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	m := listening(t, e, func(m *machine) {
		set := m.set
		m.set = func(c *engine.Config) { set(c); c.Policy = base }
	})
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(write("f", "x"), bash("exit 3"), say("done")))
	mode := string(holdfast.ModeDefault)
	if _, err := m.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	m.run(id, script(bash("echo asked"), say("done")))
	mode = string(holdfast.ModeBypassPermissions)
	if _, err := m.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	cut := m.send(id, script(bash("echo > begun; sleep 1000")))
	m.appears(id, "begun")
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	m.ended(id, cut.ID)
	until(t, func() bool { return len(e.of(hook.Stop)) == 3 })
	seen := map[string]bool{}
	for _, in := range e.all() {
		raw, err := json.Marshal(in)
		fields := map[string]json.RawMessage{}
		if err == nil {
			err = json.Unmarshal(raw, &fields)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name := range fields {
			seen[name] = true
		}
	}
	for _, name := range []string{
		"event", "toolName", "toolInput", "toolOutput", "toolUseId", "sessionId", "cwd", "error", "permissionMode",
		"lastAssistantMessage", "trigger", "permissionSuggestions", "isInterrupt", "agentType",
	} {
		if !seen[name] {
			t.Errorf("no event has %s", name)
		}
	}
}
