package app_test

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/policy"
)

// TestEveryOfferedToolIsRegistered: the server's policy knows each tool that one of its
// runtimes offers, as the runtime registered it, and rules can name it.
func TestEveryOfferedToolIsRegistered(t *testing.T) {
	p, err := app.Policy(config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if names := cli.Offered(); !slices.ContainsFunc(names, func(t policy.Tool) bool { return t.Name == "NotebookEdit" }) {
		t.Errorf("the CLI is offered %+v", names)
	}
	for _, want := range cli.Offered() {
		if got, ok := p.Tool(want.Name); !ok || got != want {
			t.Errorf("%s is registered as %+v", want.Name, got)
		}
		if _, err := p.ParseRule(want.Name); err != nil {
			t.Error(err)
		}
	}
	for _, b := range builtin.All() {
		s := b.Spec()
		got, ok := p.Tool(s.Name)
		effect := map[policy.Class]tool.Effect{
			policy.ClassReads: tool.Read, policy.ClassPlans: tool.Read, policy.ClassEdits: tool.Mutate, policy.ClassRuns: tool.Mutate,
		}[got.Class]
		if !ok || got.Name != s.Name || effect != s.Effect {
			t.Errorf("%s has the effect %d and is registered as %+v", s.Name, s.Effect, got)
		}
	}
}
