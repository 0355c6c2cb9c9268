package policy_test

import (
	"context"
	"encoding/json"
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

// TestRulesReachSearches: a rule for a directory also holds for a search that goes through it, wherever the call names the
// directory: in the path, in Glob's pattern, or above it.
func TestRulesReachSearches(t *testing.T) {
	const ask, deny, glob, wild = "Read(/workspace/secrets)", "Read(/workspace/secrets)", "Glob(/workspace/secrets)", "Read(**/.env)"
	for _, k := range []struct {
		ask, deny, tool, input string
		unscoped, sandboxed    bool
		want                   policy.Verdict
	}{
		{ask: ask, tool: "Grep", input: `{"pattern":"."}`, want: policy.Asked},
		{ask: ask, tool: "Grep", input: `{"pattern":".","path":"/workspace","glob":"secrets/**"}`, want: policy.Asked},
		{ask: ask, tool: "Grep", input: `{"pattern":".","path":"src"}`, want: policy.Allowed},
		{ask: ask, tool: "LS", input: `{"path":"/workspace"}`, want: policy.Allowed},
		{ask: ask, tool: "Glob", input: `{"pattern":"secrets/*"}`, want: policy.Asked},
		{ask: ask, tool: "Glob", input: `{"pattern":"/workspace/secrets/*"}`, want: policy.Asked},
		{ask: ask, tool: "Glob", input: `{"pattern":"*/../../secrets/*","path":"src"}`, want: policy.Asked},
		{ask: ask, tool: "Glob", input: `{"pattern":"src/*"}`, want: policy.Allowed},
		{ask: wild, tool: "Grep", input: `{"pattern":"."}`, want: policy.Allowed},
		{deny: deny, tool: "Glob", input: `{"pattern":"/workspace/secrets/*"}`, want: policy.Denied},
		{deny: glob, tool: "Glob", input: `{"pattern":"/workspace/secrets/*"}`, want: policy.Denied},
		// The Scope keeps a tool of ours out, and the walls of a box keep an agent's program out.
		{deny: deny, tool: "Grep", input: `{"pattern":"."}`, want: policy.Allowed},
		{deny: deny, tool: "Grep", input: `{"pattern":"."}`, unscoped: true, sandboxed: true, want: policy.Allowed},
		{deny: deny, tool: "Grep", input: `{"pattern":"."}`, unscoped: true, want: policy.Denied},
		{deny: "Grep(/workspace/secrets)", tool: "Grep", input: `{"pattern":"."}`, unscoped: true, sandboxed: true, want: policy.Denied},
		// A call that names no file may open any.
		{deny: deny, tool: "Read", input: `{"paths":["/workspace/a"]}`, want: policy.Denied},
		{ask: ask, tool: "Read", input: `{"file_path":""}`, want: policy.Asked},
		// Agents may leave out the blanks around a path.
		{tool: "Grep", input: `{"pattern":".","path":" /workspace"}`, unscoped: true, want: policy.Denied},
		{tool: "Grep", input: `{"pattern":".","path":"/workspace\ufeff"}`, unscoped: true, want: policy.Denied},
		{tool: "Glob", input: `{"pattern":"\u00a0/etc/*"}`, unscoped: true, want: policy.Denied},
		{tool: "Read", input: `{"file_path":"a\t"}`, unscoped: true, want: policy.Denied},
		{tool: "Read", input: `{"file_path":"a b"}`, unscoped: true, want: policy.Allowed},
		{tool: "Read", input: `{"file_path":" a"}`, want: policy.Allowed},
		{deny: "Read(~)", tool: "Read", input: `{"file_path":"~/x"}`, want: policy.Denied},
		{deny: "Read(~)", tool: "Read", input: `{"file_path":"x/~"}`, want: policy.Allowed},
	} {
		var asks, denies []string
		if k.ask != "" {
			asks = []string{k.ask}
		}
		if k.deny != "" {
			denies = []string{k.deny}
		}
		asked := false
		e := engine(t, policy.Config{Rules: rules(t, nil, asks, denies), Approver: approver(func(context.Context, policy.Request, policy.Decision) (policy.Decision, error) {
			asked = true
			return policy.Deny("no"), nil
		})})
		got := decide(t, e, policy.Request{
			Mode: holdfast.ModeDefault, Tool: k.tool, ReadOnly: true, Unscoped: k.unscoped, Sandboxed: k.sandboxed, Input: json.RawMessage(k.input),
		}).Verdict
		if asked {
			got = policy.Asked
		}
		if got != k.want {
			t.Errorf("%+v: %s", k, got)
		}
	}
}
