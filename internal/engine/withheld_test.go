package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
)

// guarded is a machine whose model is recorded, with a hook for prompts that does as guard says.
func guarded(t *testing.T, guard hook.Func, others ...hook.Definition) (*machine, *recorder) {
	t.Helper()
	r := &recorder{Model: scripted.New()}
	m := newMachine(t, func(m *machine) {
		m.rt = r.loop(t)
		m.set = func(c *engine.Config) {
			c.Hooks.Registry = new(hook.Registry)
			for _, d := range append(others, hook.Definition{Event: hook.UserPromptSubmit, Name: "guard", Func: guard}) {
				if _, err := c.Hooks.Registry.Register(d); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	return m, r
}

// neverTold runs two turns, the second after a restart, and checks that no request to the model holds the word.
func neverTold(t *testing.T, m *machine, r *recorder, id holdfast.SessionID, word string) {
	t.Helper()
	m.run(id, script(say("later")))
	m.stop(false)
	m.rt = r.loop(t)
	m.start()
	m.run(id, script(say("again")))
	if len(r.asks) < 2 {
		t.Fatalf("the model was asked %d times\n%s", len(r.asks), m.dump(id))
	}
	for _, ask := range r.asks {
		if raw, _ := json.Marshal(ask.Messages); strings.Contains(string(raw), word) {
			t.Fatalf("the model got the withheld message: %s\n%s", raw, m.dump(id))
		}
	}
	m.sound(id)
}

func refuseHunter(_ context.Context, in hook.Input) (*hook.Output, error) {
	if strings.Contains(in.Prompt, "hunter2") {
		return &hook.Output{Verdict: policy.Denied, Reason: "that is a password"}, nil
	}
	return nil, nil
}

// TestWithheldAfterTextsOfSessionStart: the text of another hook stands behind the message when the verdict on it comes.
func TestWithheldAfterTextsOfSessionStart(t *testing.T) {
	m, r := guarded(t, refuseHunter, hook.Definition{
		Event: hook.SessionStart, Name: "greeter",
		Func: func(context.Context, hook.Input) (*hook.Output, error) {
			return &hook.Output{Context: []string{"be kind"}}, nil
		},
	})
	id := m.create(holdfast.CreateSession{})
	if got := m.run(id, "it is hunter2"); got.Status != holdfast.TurnFailed {
		t.Fatalf("turn = %+v", got)
	}
	neverTold(t, m, r, id, "hunter2")
	if raw, _ := json.Marshal(r.last()); strings.Count(string(raw), "be kind") != 1 || strings.Count(string(raw), "a hook withheld") != 1 {
		t.Errorf("the model got %s", raw)
	}
}

// TestWithheldIfInterruptedBeforeTheVerdict: the turn ends while the hook still runs.
func TestWithheldIfInterruptedBeforeTheVerdict(t *testing.T) {
	began := make(chan struct{})
	m, r := guarded(t, func(ctx context.Context, in hook.Input) (*hook.Output, error) {
		if strings.Contains(in.Prompt, "hunter2") {
			close(began)
			<-ctx.Done()
		}
		return nil, nil
	})
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, "it is hunter2")
	m.reached(began)
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Fatalf("turn = %+v", got)
	}
	neverTold(t, m, r, id, "hunter2")
}

// TestWithheldIfNoHookSawTheSteeringMessage: the turn ends before it fetches a message that joined it.
func TestWithheldIfNoHookSawTheSteeringMessage(t *testing.T) {
	m, r := guarded(t, refuseHunter)
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash(gated), say("over")))
	m.appears(id, "begun")
	if _, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: "and hunter2", Mode: "steer"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Fatalf("turn = %+v", got)
	}
	neverTold(t, m, r, id, "hunter2")
	withheld := 0
	for _, ran := range datas[holdfast.HookRan](m.world, id, holdfast.EventHookRan) {
		if ran.Outcome == hook.OutcomeRefused && ran.Hook == "guard" && ran.MessageSeq > 0 {
			withheld++
		}
	}
	if withheld != 1 {
		t.Errorf("%d records of withheld messages\n%s", withheld, m.dump(id))
	}
}

// TestNothingIsWithheldWithoutHooks: a session without hooks for prompts keeps the messages of turns that failed.
func TestNothingIsWithheldWithoutHooks(t *testing.T) {
	r := &recorder{Model: scripted.New()}
	m := newMachine(t, func(m *machine) { m.rt = r.loop(t) })
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash(gated), say("over")))
	m.appears(id, "begun")
	if _, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: "and swordfish", Mode: "steer"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	m.ended(id, turn.ID)
	m.run(id, script(say("later")))
	if raw, _ := json.Marshal(r.last()); !strings.Contains(string(raw), "swordfish") {
		t.Errorf("the model did not get the message: %s", raw)
	}
}
