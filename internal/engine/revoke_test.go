package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/workspaces"
	"github.com/holdfast-run/holdfast/policy"
)

// TestAGrantIsTakenBack: after the rule was revoked, also after a restart, the call is asked about again; the list and
// the log say what happened (SDK-P18).
func TestAGrantIsTakenBack(t *testing.T) {
	for _, scope := range []holdfast.ApprovalScope{holdfast.ScopeSession, holdfast.ScopeWorkspace} {
		t.Run(string(scope), func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.asks()
			turn := m.send(id, script(bash("touch one"), bash("touch one"), say("done")))
			a := m.pending(id)
			m.answer(a, holdfast.AnswerApproval{Decision: "allow", Scope: scope})
			m.ended(id, turn.ID)
			list, err := m.AddedRules(t.Context(), id)
			if err != nil || len(list) != 1 || list[0].AddedAt.IsZero() {
				t.Fatalf("%+v, %v", list, err)
			}
			want := holdfast.Rule{Scope: scope, Behavior: "grant", Rule: "Bash(touch one)", By: string(a.ID), Trust: holdfast.Untrusted, AddedAt: list[0].AddedAt}
			if list[0] != want {
				t.Errorf("%+v", list[0])
			}
			revoked, err := m.RevokeRule(t.Context(), id, "", "Bash(touch one)", "ada")
			if err != nil || !slices.Equal(revoked, list) {
				t.Errorf("%+v, %v", revoked, err)
			}
			m.restart()
			if list, err := m.AddedRules(t.Context(), id); err != nil || len(list) != 0 {
				t.Fatalf("%+v, %v", list, err)
			}
			turn = m.send(id, script(bash("touch one"), say("done")))
			m.answer(m.pending(id), allow)
			m.ended(id, turn.ID)
			changes := datas[holdfast.RulesChanged](m.world, id, holdfast.EventRulesChanged)
			last := holdfast.RuleChange{Scope: scope, Behavior: "grant", Rule: "Bash(touch one)", Removed: true}
			if len(changes) != 2 || changes[1].By != "ada" || !slices.Equal(changes[1].Changes, []holdfast.RuleChange{last}) {
				t.Errorf("%+v", changes)
			}
		})
	}
}

// TestARunningTurnLosesARevokedRule: the turn's next call is decided without the rule.
func TestARunningTurnLosesARevokedRule(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	turn := m.send(id, script(bash("touch one"), bash("touch two"), bash("touch one"), say("done")))
	m.answer(m.pending(id), holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession})
	second := m.pending(id)
	if _, err := m.RevokeRule(t.Context(), id, holdfast.ScopeSession, "Bash(touch one)", "ada"); err != nil {
		t.Fatal(err)
	}
	m.answer(second, allow)
	m.answer(m.pending(id), allow)
	m.ended(id, turn.ID)
	if n := m.count(id, holdfast.EventApprovalAsked); n != 3 {
		t.Errorf("asked %d times\n%s", n, m.dump(id))
	}
}

// inSite makes a machine whose sessions are all in one workspace. between is called while the first call of a turn
// is decided, once set.
func inSite(t *testing.T, between *func()) *machine {
	t.Helper()
	var once sync.Once
	m := newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) {
			c.Defaults.Workspace = func(context.Context, string, string, string) (*holdfast.Workspace, error) {
				return &holdfast.Workspace{ID: "site", DefaultTrust: holdfast.Untrusted}, nil
			}
			p, err := c.Policy.With(policy.Config{Callback: policy.Func(func(context.Context, policy.Request) (policy.Decision, error) {
				if *between != nil {
					once.Do(*between)
				}
				return policy.Decision{}, nil
			})})
			if err != nil {
				t.Error(err)
			}
			c.Policy = p
		}
	})
	if _, err := m.store.Workspaces.AddWorkspace(t.Context(), workspaces.Record{Workspace: holdfast.Workspace{ID: "site"}}); err != nil {
		t.Fatal(err)
	}
	return m
}

// twice is a script whose first answer of the model calls touch one two times.
const twice = `<script>[{"tools":[{"tool":"Bash","input":{"command":"touch one"}},{"tool":"Bash","input":{"command":"touch one"}}]},{"say":"done"}]</script>`

// TestTurnsOfTheWorkspaceGetADenyRule: a deny rule that a hook adds to the workspace in another session binds the call
// of a running turn that is being decided, and the next one, even within the same answer of the model.
func TestTurnsOfTheWorkspaceGetADenyRule(t *testing.T) {
	var between func()
	m := inSite(t, &between)
	one, two := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	between = func() { m.deniesTouch(one) }
	turn := m.send(two, twice)
	m.ended(two, turn.ID)
	if d := datas[holdfast.ToolDecision](m.world, two, holdfast.EventToolDenied); len(d) != 2 || d[0].Rule != "Bash(touch *)" || d[1].Rule != "Bash(touch *)" {
		t.Errorf("%+v\n%s", d, m.dump(two))
	}
}

// deniesTouch adds a deny rule to the workspace of inSite, as a hook of a session does.
func (m *machine) deniesTouch(id holdfast.SessionID) {
	m.t.Helper()
	c := journal.NewChange(id)
	c.ChangeRules("", "hook", []journal.RuleChange{{
		Key: journal.WorkspaceKey("site"), Source: "hook",
		RuleChange: holdfast.RuleChange{Scope: holdfast.ScopeWorkspace, Behavior: "deny", Rule: "Bash(touch *)"},
	}})
	if _, err := m.journal.Commit(m.t.Context(), c); err != nil {
		m.t.Error(err)
	}
}

// TestADenyRuleStopsACallThatWasAskedAbout: a deny rule that arrives while a person is asked about a call stops it,
// although the person allows it.
func TestADenyRuleStopsACallThatWasAskedAbout(t *testing.T) {
	for _, scope := range []holdfast.ApprovalScope{holdfast.ScopeOnce, holdfast.ScopeSession, holdfast.ScopeWorkspace} {
		t.Run(string(scope), func(t *testing.T) {
			var never func()
			m := inSite(t, &never)
			one, two := m.create(holdfast.CreateSession{}), m.asks()
			turn := m.send(two, script(bash("touch one"), say("done")))
			a := m.pending(two)
			m.deniesTouch(one)
			m.answer(a, holdfast.AnswerApproval{Decision: "allow", Scope: scope})
			m.ended(two, turn.ID)
			d := datas[holdfast.ToolDecision](m.world, two, holdfast.EventToolDenied)
			if len(d) != 1 || d[0].Rule != "Bash(touch *)" || m.count(two, holdfast.EventToolStarted) != 0 {
				t.Errorf("%+v\n%s", d, m.dump(two))
			}
		})
	}
}

// TestTurnsOfTheWorkspaceLoseARevokedRule: when the rule of a workspace is revoked in one session, the running turn of
// another one decides its next call without it, even within the same answer of the model.
func TestTurnsOfTheWorkspaceLoseARevokedRule(t *testing.T) {
	var revoke func()
	m := inSite(t, &revoke)
	one, two := m.asks(), m.asks()
	turn := m.send(one, script(bash("touch one"), say("done")))
	m.answer(m.pending(one), holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeWorkspace})
	m.ended(one, turn.ID)
	revoke = func() {
		if _, err := m.RevokeRule(t.Context(), one, "", "Bash(touch one)", "ada"); err != nil {
			t.Error(err)
		}
	}
	turn = m.send(two, twice)
	m.answer(m.pending(two), allow)
	m.ended(two, turn.ID)
	if n := m.count(two, holdfast.EventApprovalAsked); n != 1 {
		t.Errorf("asked %d times\n%s", n, m.dump(two))
	}
}

// TestOnlyWhatAllowsIsRevoked: a rule that denies or asks stays, as does the one of the other scope, and a rule that is not
// there is not found. An ended session's rules can be revoked too: those of its workspace outlive it.
func TestOnlyWhatAllowsIsRevoked(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	c := journal.NewChange(id)
	for _, r := range []holdfast.RuleChange{
		{Scope: holdfast.ScopeSession, Behavior: "deny", Rule: "Bash(make *)"},
		{Scope: holdfast.ScopeSession, Behavior: "ask", Rule: "Bash(make *)"},
		{Scope: holdfast.ScopeSession, Behavior: "allow", Rule: "Bash(make *)"},
		{Scope: holdfast.ScopeWorkspace, Behavior: "grant", Rule: "Bash(make *)"},
		{Scope: holdfast.ScopeSession, Behavior: "deny", Rule: "Bash(rm *)"},
	} {
		c.Rules = append(c.Rules, journal.RuleChange{Key: string(id), Source: "hook", RuleChange: r})
	}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "test"}}}
	if _, err := m.journal.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	revoke := func(scope holdfast.ApprovalScope, rule string, want ...string) {
		t.Helper()
		got, err := m.RevokeRule(t.Context(), id, scope, rule, "ada")
		if len(want) == 0 {
			m.wantKind(err, holdfast.KindNotFound)
			return
		}
		var behaviors []string
		for _, r := range got {
			behaviors = append(behaviors, r.Behavior)
		}
		if err != nil || !slices.Equal(behaviors, want) {
			t.Errorf("%s: %q, %v", rule, behaviors, err)
		}
	}
	_, err := m.RevokeRule(t.Context(), id, holdfast.ScopeOnce, "Bash(make *)", "ada")
	m.wantKind(err, holdfast.KindInvalid)
	revoke("", "Bash(rm *)")
	revoke("", "Bash(make)")
	revoke("", "Bash(((")
	revoke(holdfast.ScopeSession, "Bash(make *)", "allow")
	revoke(holdfast.ScopeSession, "Bash(make *)")
	if _, err := m.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	revoke("", "Bash(make *)", "grant")
	list, err := m.AddedRules(t.Context(), id)
	if err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
}
