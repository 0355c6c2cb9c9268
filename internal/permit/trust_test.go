package permit_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/policy"
)

// TestRulesOfLowerTrust: what was granted to an untrusted session allows nothing in a trusted one (I-48). What an untrusted
// session denies or asks, what a trusted one was granted, and the settings of a workspace hold for both.
func TestRulesOfLowerTrust(t *testing.T) {
	granted := func(scope holdfast.ApprovalScope, behavior, rule string, trust holdfast.Trust) journal.Rule {
		return journal.Rule{Scope: scope, Key: "one", Behavior: behavior, Rule: rule, Trust: trust}
	}
	from := &sources{rules: []journal.Rule{
		granted(holdfast.ScopeSession, "grant", "Bash(low *)", holdfast.Untrusted),
		granted(holdfast.ScopeWorkspace, "allow", "Bash(lower *)", holdfast.Untrusted),
		granted(holdfast.ScopeWorkspace, "allow", "Bash(unknown *)", ""),
		granted(holdfast.ScopeWorkspace, "grant", "Bash(high *)", holdfast.Trusted),
		granted(holdfast.ScopeWorkspace, "deny", "Bash(high never)", holdfast.Untrusted),
		granted(holdfast.ScopeWorkspace, "ask", "Bash(settings ask)", holdfast.Untrusted),
		granted("workspace's settings", "allow", "Bash(settings *)", ""),
	}}
	p := policies(t, from)
	for _, c := range []struct {
		command           string
		trusted, untrused policy.Verdict
	}{
		{"low x", policy.Denied, policy.Allowed},
		{"lower x", policy.Denied, policy.Allowed},
		{"unknown x", policy.Denied, policy.Allowed},
		{"high x", policy.Allowed, policy.Allowed},
		{"high never", policy.Denied, policy.Denied},
		{"settings ask", policy.Denied, policy.Denied},
		{"settings x", policy.Allowed, policy.Allowed},
	} {
		for trust, want := range map[holdfast.Trust]policy.Verdict{holdfast.Trusted: c.trusted, holdfast.Untrusted: c.untrused} {
			row := row
			row.Trust = trust
			if got, by, _ := decides(t, p.Layers(permit.Session{Row: row}), c.command); got != want {
				t.Errorf("%s in a session that is %s: %v by %s, want %v", c.command, trust, got, by, want)
			}
		}
	}
}

// TestRulesOfHigherTrustStay: an untrusted session removes no rule with which a trusted one denies or asks; a trusted
// one removes all.
func TestRulesOfHigherTrustStay(t *testing.T) {
	stored := func(behavior, rule string, trust holdfast.Trust) journal.Rule {
		return journal.Rule{Scope: holdfast.ScopeWorkspace, Key: "one", Behavior: behavior, Rule: rule, Trust: trust}
	}
	from := &sources{rules: []journal.Rule{
		stored("ask", "Bash(one)", holdfast.Trusted), stored("ask", "Bash(two)", holdfast.Untrusted), stored("allow", "Bash(three)", holdfast.Trusted),
		stored("allow", "Bash(four)", holdfast.Untrusted),
	}}
	p := policies(t, from)
	for trust, want := range map[holdfast.Trust]string{
		holdfast.Untrusted: "allow Bash(three), allow Bash(four), ask Bash(two)",
		holdfast.Trusted:   "ask Bash(one), ask Bash(two), allow Bash(three), allow Bash(four), ask Bash(two)",
	} {
		row := row
		row.Trust = trust
		u := p.Updates(row, "turn")
		remove := func(kind policy.UpdateType, behavior string, rules ...string) policy.Update {
			return policy.Update{Type: kind, Behavior: behavior, Rules: rules, Destination: policy.ToProject}
		}
		fact, err := u.Take(t.Context(), permit.UpdatesOf(permit.ByHook, []policy.Update{
			remove(policy.ReplaceRules, "ask"), remove(policy.ReplaceRules, "allow"), remove(policy.RemoveRules, "ask", "Bash(two)"),
		}))
		if err != nil {
			t.Fatal(err)
		}
		c := journal.NewChange("one")
		fact.After(&c)
		var got []string
		for _, r := range c.Rules {
			if !r.Removed {
				t.Errorf("%s adds %+v", trust, r)
			}
			got = append(got, r.Behavior+" "+r.Rule)
		}
		if list := strings.Join(got, ", "); list != want {
			t.Errorf("a session that is %s removes %s, want %s", trust, list, want)
		}
	}
}
