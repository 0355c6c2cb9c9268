package replay

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// book writes a log.
type book struct {
	t   *testing.T
	r   *Replay
	seq int64
	out []Call
	// skipped counts the calls that no policy decided.
	skipped int
}

func newBook(t *testing.T, cfg policy.Config) *book {
	t.Helper()
	p, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &book{t: t, r: New(p)}
}

func (b *book) event(typ holdfast.EventType, data any) error {
	b.t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		b.t.Fatal(err)
	}
	b.seq++
	c, skipped, err := b.r.Event(b.t.Context(), holdfast.Event{Session: "s", Seq: b.seq, Type: typ, Data: raw})
	if c != nil {
		b.out = append(b.out, *c)
	}
	if skipped {
		b.skipped++
	}
	return err
}

func (b *book) must(typ holdfast.EventType, data any) {
	b.t.Helper()
	if err := b.event(typ, data); err != nil {
		b.t.Fatal(err)
	}
}

// call is a Bash call with what happened before its decision.
func (b *book) call(command string, typ holdfast.EventType, d holdfast.ToolDecision, before ...func()) Call {
	b.t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		b.t.Fatal(err)
	}
	d.ToolUseID = "u"
	b.must(holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: "u", Name: "Bash", Input: input})
	for _, f := range before {
		f()
	}
	n := len(b.out)
	b.must(typ, d)
	if len(b.out) != n+1 {
		b.t.Fatalf("%s was not decided", command)
	}
	return b.out[n]
}

func rule(t *testing.T, s string) policy.Rule {
	t.Helper()
	r, err := policy.ParseRule(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReplayFollowsTheLog(t *testing.T) {
	b := newBook(t, policy.Config{Rules: policy.RuleSet{Deny: []policy.Rule{rule(t, "Bash(rm *)")}, Ask: []policy.Rule{rule(t, "Bash(git push *)")}}})
	b.must(holdfast.EventSessionCreated, holdfast.SessionCreated{Mode: holdfast.ModeBypassPermissions, Trust: holdfast.Untrusted})
	allowed, denied := holdfast.EventToolAllowed, holdfast.EventToolDenied
	check := func(c Call, old, now string, differs bool) {
		t.Helper()
		if c.Old.Verdict != old || c.New.Verdict != now || c.Differs != differs {
			t.Errorf("%s: %+v -> %+v, differs %v", c.Input, c.Old, c.New, c.Differs)
		}
	}
	byMode := holdfast.ToolDecision{By: "mode"}
	check(b.call("ls", allowed, byMode), "allow", "allow", false)
	check(b.call("rm x", allowed, byMode), "allow", "deny", true)
	// A person answered: the question is what is compared.
	ask := func() {
		b.must(holdfast.EventApprovalAsked, holdfast.Approval{ToolUseID: "u", By: "ask rule"})
	}
	answer := func() {
		b.must(holdfast.EventApprovalAnswered, holdfast.ApprovalAnswered{ToolUseID: "u", State: holdfast.ApprovalAllowed, By: "owner"})
	}
	c := b.call("git push x", allowed, holdfast.ToolDecision{By: "approver"}, ask, answer)
	if check(c, "ask", "ask", false); c.Old.Answer != "allowed" || c.Old.AnsweredBy != "owner" {
		t.Errorf("the answer is not shown: %+v", c.Old)
	}
	check(b.call("ls", allowed, holdfast.ToolDecision{By: "approver"}, ask, answer), "ask", "allow", true)
	expire := func() {
		b.must(holdfast.EventApprovalExpired, holdfast.ApprovalAnswered{ToolUseID: "u", State: holdfast.ApprovalExpired})
	}
	if c := b.call("ls", denied, holdfast.ToolDecision{By: "approver"}, ask, expire); c.Old.Answer != "expired" {
		t.Errorf("the end of the question is not shown: %+v", c.Old)
	}
	// What a hook said stands; a rewritten input is what ran.
	check(b.call("ls", denied, holdfast.ToolDecision{By: "hook", Reason: "no"}), "deny", "deny", false)
	check(b.call("ls", allowed, holdfast.ToolDecision{By: "mode", Input: json.RawMessage(`{"command":"rm y"}`)}), "allow", "deny", true)
	// Mode and rules are those of the time.
	mode := holdfast.ModeDefault
	b.must(holdfast.EventSessionUpdated, holdfast.SessionUpdated{SessionChange: holdfast.SessionChange{Mode: &mode}})
	check(b.call("ls", denied, byMode), "deny", "ask", true)
	grant := holdfast.RuleChange{Scope: holdfast.ScopeSession, Behavior: "grant", Rule: "Bash(ls:*)"}
	b.must(holdfast.EventRulesChanged, holdfast.RulesChanged{Changes: []holdfast.RuleChange{grant}})
	check(b.call("ls", allowed, byMode), "allow", "allow", false)
	// What an answer left holds from the next call on.
	asks := func() {
		ask()
		answer()
		b.must(holdfast.EventRulesChanged, holdfast.RulesChanged{Changes: []holdfast.RuleChange{{Scope: holdfast.ScopeSession, Behavior: "grant", Rule: "Bash(make *)"}}})
	}
	check(b.call("make x", allowed, holdfast.ToolDecision{By: "approval"}, asks), "ask", "ask", false)
	check(b.call("make y", allowed, holdfast.ToolDecision{By: "granted rule"}), "allow", "allow", false)
	// A rule that was granted while the session ran in a box does not allow calls on the host (I-48).
	for _, at := range []struct {
		trust holdfast.Trust
		want  string
	}{{holdfast.Trusted, "ask"}, {holdfast.Untrusted, "allow"}} {
		b.must(holdfast.EventSessionUpdated, holdfast.SessionUpdated{SessionChange: holdfast.SessionChange{Trust: &at.trust}})
		check(b.call("ls", allowed, byMode), "allow", at.want, at.want != "allow")
	}
	grant.Removed = true
	b.must(holdfast.EventRulesChanged, holdfast.RulesChanged{Changes: []holdfast.RuleChange{grant}})
	check(b.call("ls", allowed, byMode), "allow", "ask", true)
	b.must(holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: "x", Name: "Nope"})
	b.must(denied, holdfast.ToolDecision{ToolUseID: "x", By: "unknown tool"})
	if b.skipped != 1 {
		t.Errorf("%d calls skipped, want 1", b.skipped)
	}
	if n := len(b.r.calls); n != 0 {
		t.Errorf("%d decided calls are kept", n)
	}
}
