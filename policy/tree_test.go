package policy_test

import (
	"context"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// TestRulesOfDirectories: what a rule that denies or asks says of a directory holds for everything in it, and what a rule for
// Read denies cannot be edited; an allow rule holds for the named path alone (K15).
func TestRulesOfDirectories(t *testing.T) {
	for _, k := range []struct {
		allow, ask, deny string
		tool, path       string
		want             policy.Verdict
	}{
		{deny: "Read(/workspace/secrets)", tool: "Read", path: "secrets/a", want: policy.Denied},
		{deny: "Read(/workspace/secrets)", tool: "Read", path: "/workspace/secrets/deep/a", want: policy.Denied},
		{deny: "Read(/workspace/secrets)", tool: "Read", path: "secrets", want: policy.Denied},
		{deny: "Read(/workspace/secrets)", tool: "Read", path: "secrets2/a", want: policy.Allowed},
		{deny: "Read(/workspace/secrets)", tool: "Edit", path: "secrets/a", want: policy.Denied},
		{deny: "Read(/workspace/secrets/**)", tool: "Write", path: "secrets/a", want: policy.Denied},
		{deny: "Read(/workspace/secrets/**)", tool: "Write", path: "secrets", want: policy.Denied},
		{deny: "Edit(/workspace/secrets)", tool: "Read", path: "secrets/a", want: policy.Allowed},
		{deny: "Read(secrets)", tool: "Read", path: "x/secrets/y/a", want: policy.Denied},
		{deny: "Read(./x/*)", tool: "Read", path: "x/y/a", want: policy.Denied},
		{deny: "Read(./x/*)", tool: "Read", path: "x", want: policy.Allowed},
		{deny: "Read(/)", tool: "Read", path: "a", want: policy.Denied},
		{ask: "Edit(/workspace/secrets)", tool: "Edit", path: "secrets/a", want: policy.Asked},
		{ask: "Read(/workspace/secrets)", tool: "Edit", path: "secrets/a", want: policy.Allowed},
		{allow: "Edit(/etc/conf)", tool: "Edit", path: "/etc/conf", want: policy.Allowed},
		{allow: "Edit(/etc/conf)", tool: "Edit", path: "/etc/conf/a", want: policy.Asked},
	} {
		list := func(rule string) []string {
			if rule == "" {
				return nil
			}
			return []string{rule}
		}
		rules, err := policy.ParseRules(list(k.allow), list(k.ask), list(k.deny))
		if err != nil {
			t.Fatal(err)
		}
		asked := false
		e := engine(t, policy.Config{Rules: rules, Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
			asked = true
			return policy.Deny("no"), nil
		})})
		got := decide(t, e, file(holdfast.ModeAcceptEdits, k.tool, k.path)).Verdict
		if asked {
			got = policy.Asked
		}
		if got != k.want {
			t.Errorf("allow %q, ask %q, deny %q: %s of %s is %s, want %s", k.allow, k.ask, k.deny, k.tool, k.path, got, k.want)
		}
	}
}
