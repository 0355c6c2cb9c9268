package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
)

// TestSDKP18_WhatAnAnswerChanges: an answer of a callback may change the rules and the
// mode of its session, for the calls after it; what it wants changed beyond, of
// directories and of the owner's settings, is not done and told; with a denial it may
// end the turn.
func TestSDKP18_WhatAnAnswerChanges(t *testing.T) {
	answers := policy.Func(func(_ context.Context, r policy.Request) (policy.Decision, error) {
		switch in := string(r.Input); {
		case strings.Contains(in, "echo 1"):
			d := policy.Allow()
			d.Updates = []policy.Update{
				{Type: policy.AddRules, Destination: policy.ToSession, Behavior: "deny", Rules: []string{"Bash(echo 2 *)"}},
				{Type: policy.AddDirectories, Destination: policy.ToSession, Directories: []string{"/srv"}},
				{Type: policy.AddRules, Destination: policy.ToUser, Behavior: "allow", Rules: []string{"WebFetch"}},
			}
			return d, nil
		case strings.Contains(in, "echo 3"):
			d := policy.Allow()
			d.Updates = []policy.Update{{Type: policy.SetMode, Destination: policy.ToSession, Mode: holdfast.ModeDontAsk}}
			return d, nil
		case strings.Contains(in, "echo 5"):
			d := policy.Deny("enough")
			d.Interrupt = true
			return d, nil
		}
		return policy.Decision{}, nil
	})
	base, err := policy.New(policy.Config{Callback: answers})
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { c.Policy = base } })
	id := m.create(holdfast.CreateSession{})
	turn := m.run(id, script(bash("echo 1 >> f"), bash("echo 2 >> f"), bash("echo 3 >> f"), bash("echo 4 >> f"), bash("echo 5 >> f"), bash("echo 6 >> f"), say("never")))
	if got := m.file(id, "f"); got != "1\n3\n" || turn.Status != holdfast.TurnInterrupted {
		t.Errorf("f is %q, the turn is %s\n%s", got, turn.Status, m.dump(id))
	}
	if s, err := m.Session(t.Context(), id); err != nil || s.Mode != holdfast.ModeDontAsk {
		t.Errorf("mode %s, %v", s.Mode, err)
	}
	told := ""
	for _, n := range datas[holdfast.Notice](m.world, id, holdfast.EventNotice) {
		told += n.Text + "\n"
	}
	for _, want := range []string{"addDirectories to session", "addRules to userSettings"} {
		if !strings.Contains(told, want) {
			t.Errorf("%s is not told: %q", want, told)
		}
	}
	for _, c := range datas[holdfast.RulesChanged](m.world, id, holdfast.EventRulesChanged) {
		for _, r := range c.Changes {
			if r.Scope != holdfast.ScopeSession || r.Rule != "Bash(echo 2 *)" {
				t.Errorf("changed %+v", r)
			}
		}
	}
}
