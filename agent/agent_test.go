package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/policy"
)

// anything allows all calls.
type anything struct{}

func (anything) Decide(context.Context, policy.Request) (policy.Decision, error) {
	return policy.Allow(), nil
}

func (anything) Scope(context.Context, policy.Request) (policy.Scope, error) {
	return policy.Scope{}, nil
}

func TestConfigsThatLackSomething(t *testing.T) {
	for name, cfg := range map[string]agent.Config{
		"no model":          {Policy: anything{}},
		"no policy":         {Provider: scripted.New()},
		"an unknown mode":   {Provider: scripted.New(), Policy: anything{}, Mode: "whatever"},
		"tools without box": {Provider: scripted.New(), Policy: anything{}, Tools: builtin.All()},
		"a tool twice":      {Provider: scripted.New(), Policy: anything{}, Tools: []tool.Tool{weather{}, weather{}}},
	} {
		if _, err := agent.New(cfg); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow is a tool that waits until it is cancelled.
type slow struct{ began func() }

func (slow) Spec() tool.Spec {
	return tool.Spec{Name: "Slow", Effect: tool.Mutate, Where: tool.InServer}
}

func (s slow) Run(ctx context.Context, _ tool.Call) (tool.Result, error) {
	s.began()
	<-ctx.Done()
	return tool.Result{}, ctx.Err()
}

// TestAConversationGoesOnAfterAnInterrupt: what was said and done before stays known, with
// an answer to each call.
func TestAConversationGoesOnAfterAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var events []string
	a, err := agent.New(agent.Config{
		Provider: scripted.New(), Policy: anything{}, Tools: []tool.Tool{slow{cancel}, weather{}},
		Events: func(typ holdfast.EventType, _ any) { events = append(events, string(typ)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Say(ctx, `<script>[{"tool":"Slow"},{"say":"never"}]</script>`)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := strings.Join(events, " "); !strings.Contains(got, "tool.started tool.finished") {
		t.Errorf("events %s", got)
	}
	answer, err := a.Say(t.Context(), "What do you know?")
	if err != nil || !strings.Contains(answer.Text, "I have seen 1 tool results.") {
		t.Errorf("%q, %v", answer.Text, err)
	}
}

// TestAFailedModelCallLosesNothing: the message is still known when the next one is sent.
func TestAFailedModelCallLosesNothing(t *testing.T) {
	a, err := agent.New(agent.Config{Provider: scripted.New(), Policy: anything{}, Tools: []tool.Tool{weather{}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Say(t.Context(), `<script>[{"error":"invalid"}]</script>`); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Fatal(err)
	}
	answer, err := a.Say(t.Context(), "What do you know?")
	if err != nil || answer.Text == "" {
		t.Errorf("%q, %v", answer.Text, err)
	}
}
