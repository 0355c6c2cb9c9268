package storetest

import (
	"encoding/json"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// question returns a new pending approval for the tool use in a session.
func (e *env) question(id holdfast.SessionID, use string) *holdfast.Approval {
	input := json.RawMessage(`{"command":"rm -rf x"}`)
	expires := time.UnixMilli(1_900_000_000_000).UTC()
	return &holdfast.Approval{
		ID: holdfast.ApprovalID(e.newID()), Session: id, Turn: "turn", ToolUseID: use, Tool: "Bash", Input: input,
		InputHash: policy.InputHash(input), By: "ask rule", Rule: "Bash(rm *)", Reason: "it removes", Suggestions: []string{"Bash(rm -rf x)", "Bash(echo \"done\")"},
		State: holdfast.ApprovalPending, ExpiresAt: &expires,
	}
}

// ask commits a new approval together with its event.
func (e *env) ask(a *holdfast.Approval) {
	e.Helper()
	c := journal.NewChange(a.Session)
	c.Approvals = []journal.ApprovalChange{{Ask: a}}
	c.Events = []journal.Draft{{Type: holdfast.EventApprovalAsked, Data: a}}
	e.commit(c)
}

// answers returns a change that answers the approval a: to is its new state, by the name of the person who answers.
func answers(a *holdfast.Approval, to holdfast.ApprovalState, by string) journal.Change {
	c := journal.NewChange(a.Session)
	c.Approvals = []journal.ApprovalChange{{ID: a.ID, To: to, By: by, Scope: holdfast.ScopeOnce, Answer: "because"}}
	c.Events = []journal.Draft{{Type: holdfast.EventApprovalAnswered, Data: holdfast.ApprovalAnswered{ID: a.ID, State: to}}}
	return c
}

func (e *env) approval(id holdfast.ApprovalID) holdfast.Approval {
	e.Helper()
	a, err := e.Store.Approval(e.ctx, id)
	e.ok(err)
	return a
}

func (e *env) approvals(q journal.ApprovalQuery) []holdfast.ApprovalID {
	e.Helper()
	p, err := e.Store.Approvals(e.ctx, q)
	e.ok(err)
	var out []holdfast.ApprovalID
	for _, a := range p.Approvals {
		out = append(out, a.ID)
	}
	return out
}

func (e *env) rules(scope holdfast.ApprovalScope, key string) []string {
	e.Helper()
	list, err := e.Store.Rules(e.ctx, key)
	e.ok(err)
	out := []string{}
	for _, r := range list {
		if r.Scope != scope {
			continue
		}
		out = append(out, r.Behavior+" "+r.Rule+" "+r.Source)
	}
	return out
}

func rule(scope holdfast.ApprovalScope, key, behavior, text string, removed bool) journal.RuleChange {
	return journal.RuleChange{Key: key, Source: "me", RuleChange: holdfast.RuleChange{Scope: scope, Behavior: behavior, Rule: text, Removed: removed}}
}

func same[T any](e *env, what string, got, want T) {
	e.Helper()
	if !reflect.DeepEqual(got, want) {
		e.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

var approvalCases = []testCase{
	{"rules are told as each change leaves them, also to who has read them before", func(e *env) {
		id := e.newSession()
		key := string(id)
		commit := func(changes ...journal.RuleChange) {
			c := journal.NewChange(id)
			c.Rules = changes
			c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
			e.commit(c)
		}
		same(e, "none", e.rules(holdfast.ScopeSession, key), []string{})
		commit(rule(holdfast.ScopeSession, key, "allow", "Read", false))
		same(e, "one", e.rules(holdfast.ScopeSession, key), []string{"allow Read me"})
		commit(rule(holdfast.ScopeSession, key, "deny", "Bash", false), rule(holdfast.ScopeSession, key, "allow", "Read", true))
		same(e, "another", e.rules(holdfast.ScopeSession, key), []string{"deny Bash me"})
		list, err := e.Store.Rules(e.ctx, key)
		e.ok(err)
		list[0].Rule = "changed by its reader"
		same(e, "the same", e.rules(holdfast.ScopeSession, key), []string{"deny Bash me"})
		e.move(id, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		same(e, "with its session", e.rules(holdfast.ScopeSession, key), []string{})
	}},
	{"keeps a question with its event, and both outlive a restart", func(e *env) {
		id := e.newSession()
		a := e.question(id, "use-1")
		revision := e.row(id).Revision
		e.ask(a)
		e.Store = e.Reopen(e.T)
		got := e.approval(a.ID)
		if got.AskedAt.IsZero() {
			e.Fatal("it was asked at no time")
		}
		got.AskedAt = time.Time{}
		same(e, "approval", got, *a)
		equal(e, "events", len(e.log(id)), 2)
		equal(e, "revision", e.row(id).Revision, revision)
		_, err := e.Store.Approval(e.ctx, holdfast.ApprovalID(e.newID()))
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"is answered once: the second answer is refused and quotes the first", func(e *env) {
		id := e.newSession()
		for _, to := range []holdfast.ApprovalState{holdfast.ApprovalAllowed, holdfast.ApprovalDenied, holdfast.ApprovalExpired} {
			a := e.question(id, "use-"+string(to))
			e.ask(a)
			e.commit(answers(a, to, "ada"))
			got := e.approval(a.ID)
			if got.State != to || got.AnsweredBy != "ada" || got.AnsweredAt == nil || got.Scope != holdfast.ScopeOnce || got.Answer != "because" {
				e.Fatalf("%+v", got)
			}
			for _, again := range []holdfast.ApprovalState{holdfast.ApprovalAllowed, holdfast.ApprovalDenied, holdfast.ApprovalExpired} {
				c := answers(a, again, "bob")
				c.Rules = []journal.RuleChange{rule(holdfast.ScopeSession, string(id), "grant", "Bash", false)}
				e.refuse(c, holdfast.KindConflict, string(to), "ada", "because")
			}
			same(e, "approval", e.approval(a.ID), got)
		}
	}},
	{"refuses what is no question or no end, without a trace", func(e *env) {
		id, other := e.newSession(), e.newSession()
		a := e.question(id, "u")
		e.ask(a)
		c := journal.NewChange(id)
		c.Approvals = []journal.ApprovalChange{{Ask: a}}
		e.refuse(c, holdfast.KindConflict, string(a.ID))
		c = answers(a, holdfast.ApprovalAllowed, "x")
		c.Session = other
		e.refuse(c, holdfast.KindNotFound, string(a.ID))
		e.refuse(answers(e.question(id, "never asked"), holdfast.ApprovalAllowed, "x"), holdfast.KindNotFound)
		for _, to := range []holdfast.ApprovalState{"", holdfast.ApprovalPending, "maybe"} {
			e.refuse(answers(a, to, "x"), holdfast.KindInvalid)
		}
		c = answers(a, holdfast.ApprovalAllowed, "x")
		c.Approvals = append(c.Approvals, c.Approvals[0])
		e.refuse(c, holdfast.KindInvalid, "twice")
		for _, spoil := range []func(*holdfast.Approval){
			func(a *holdfast.Approval) { a.ID = "" }, func(a *holdfast.Approval) { a.Turn = "" },
			func(a *holdfast.Approval) { a.ToolUseID = "" }, func(a *holdfast.Approval) { a.Tool = "" },
			func(a *holdfast.Approval) { a.Input = json.RawMessage(`{`) }, func(a *holdfast.Approval) { a.Reason = "a\x00" },
		} {
			bad := e.question(id, "bad")
			spoil(bad)
			c := journal.NewChange(id)
			c.Approvals = []journal.ApprovalChange{{Ask: bad}}
			e.refuse(c, holdfast.KindInvalid)
		}
		equal(e, "state", e.approval(a.ID).State, holdfast.ApprovalPending)
	}},
	{"lists by state, session, call and prefix, the longest asked first, in pages", func(e *env) {
		one, two := e.newSession(), e.newSession()
		var all []holdfast.ApprovalID
		for i := range 7 {
			a := e.question([]holdfast.SessionID{one, two}[i%2], "use-"+num(i))
			e.ask(a)
			all = append(all, a.ID)
			if i == 3 {
				e.commit(answers(a, holdfast.ApprovalDenied, "x"))
			}
		}
		same(e, "all", e.approvals(journal.ApprovalQuery{}), all)
		same(e, "pending", e.approvals(journal.ApprovalQuery{State: holdfast.ApprovalPending}), append(append([]holdfast.ApprovalID{}, all[:3]...), all[4:]...))
		same(e, "denied", e.approvals(journal.ApprovalQuery{State: holdfast.ApprovalDenied}), all[3:4])
		same(e, "of one session", e.approvals(journal.ApprovalQuery{Session: two}), []holdfast.ApprovalID{all[1], all[3], all[5]})
		same(e, "of a call", e.approvals(journal.ApprovalQuery{Turn: "turn", ToolUse: "use-2"}), all[2:3])
		same(e, "of a prefix", e.approvals(journal.ApprovalQuery{IDPrefix: string(all[4])}), all[4:5])
		var paged []holdfast.ApprovalID
		for q := (journal.ApprovalQuery{Limit: 3}); ; {
			p, err := e.Store.Approvals(e.ctx, q)
			e.ok(err)
			for _, a := range p.Approvals {
				paged = append(paged, a.ID)
			}
			if q.Cursor = p.Next; p.Next == "" {
				break
			}
		}
		same(e, "pages", paged, all)
		counts, err := e.Store.Counts(e.ctx)
		e.ok(err)
		equal(e, "counted", counts.Approvals, int64(6))
		_, err = e.Store.Approvals(e.ctx, journal.ApprovalQuery{Cursor: "x"})
		e.isKind(err, holdfast.KindInvalid)
		for _, n := range []int{-1, 1001} {
			_, err = e.Store.Approvals(e.ctx, journal.ApprovalQuery{Limit: n})
			e.isKind(err, holdfast.KindInvalid)
		}
		_, err = e.Store.Approvals(e.ctx, journal.ApprovalQuery{Session: holdfast.SessionID(e.newID())})
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"knows what expires next, among the pending", func(e *env) {
		id := e.newSession()
		at, err := e.Store.NextExpiry(e.ctx)
		e.ok(err)
		if !at.IsZero() {
			e.Fatalf("something expires at %s", at)
		}
		var asked []*holdfast.Approval
		for i, ms := range []int64{3000, 1000, 2000, 0} {
			a := e.question(id, num(i))
			if a.ExpiresAt = nil; ms != 0 {
				at := time.UnixMilli(ms).UTC()
				a.ExpiresAt = &at
			}
			e.ask(a)
			asked = append(asked, a)
		}
		due := func(ms int64) []holdfast.ApprovalID {
			return e.approvals(journal.ApprovalQuery{State: holdfast.ApprovalPending, Due: time.UnixMilli(ms)})
		}
		same(e, "due", due(2000), []holdfast.ApprovalID{asked[1].ID, asked[2].ID})
		same(e, "due", due(999), nil)
		e.commit(answers(asked[1], holdfast.ApprovalExpired, ""))
		same(e, "due", due(2000), []holdfast.ApprovalID{asked[2].ID})
		at, err = e.Store.NextExpiry(e.ctx)
		e.ok(err)
		same(e, "next", at, time.UnixMilli(2000).UTC())
		if a := e.approval(asked[3].ID); a.ExpiresAt != nil {
			e.Fatalf("expires at %s", a.ExpiresAt)
		}
	}},
	{"keeps rules by scope and key, each once, in order, also over a restart", func(e *env) {
		id := e.newSession()
		k := string(id)
		c := journal.NewChange(id)
		c.Rules = []journal.RuleChange{
			rule(holdfast.ScopeSession, k, "grant", "Bash", false), rule(holdfast.ScopeSession, k, "deny", "Read", false),
			rule(holdfast.ScopeWorkspace, k, "grant", "Edit", false), rule(holdfast.ScopeSession, k, "grant", "Bash", false),
			rule(holdfast.ScopeSession, k, "allow", "LS", false), rule(holdfast.ScopeSession, k, "allow", "LS", true),
			rule(holdfast.ScopeSession, k, "ask", "never there", true),
		}
		revision := e.row(id).Revision
		e.commit(c)
		e.Store = e.Reopen(e.T)
		same(e, "of the session", e.rules(holdfast.ScopeSession, k), []string{"grant Bash me", "deny Read me"})
		same(e, "of the workspace", e.rules(holdfast.ScopeWorkspace, k), []string{"grant Edit me"})
		same(e, "of another", e.rules(holdfast.ScopeSession, "other"), []string{})
		equal(e, "revision", e.row(id).Revision, revision)
		for _, r := range []journal.RuleChange{
			rule(holdfast.ScopeOnce, k, "grant", "Bash", false), rule(holdfast.ScopeSession, "", "grant", "Bash", false),
			rule(holdfast.ScopeSession, k, "maybe", "Bash", false), rule(holdfast.ScopeSession, k, "grant", "", false),
			rule(holdfast.ScopeSession, k, "grant", "a\x00", false),
		} {
			c := journal.NewChange(id)
			c.Rules = []journal.RuleChange{r}
			e.refuse(c, holdfast.KindInvalid)
		}
	}},
	{"keeps with a rule the highest trust of a session that added it, also over a restart", func(e *env) {
		sessions := map[holdfast.Trust]holdfast.SessionID{}
		for _, trust := range []holdfast.Trust{holdfast.Trusted, holdfast.Untrusted} {
			c := creation(holdfast.SessionID(e.newID()))
			c.Create.Trust = trust
			e.commit(c)
			sessions[trust] = c.Session
		}
		adds := func(trust holdfast.Trust, rules ...string) {
			c := journal.NewChange(sessions[trust])
			for _, r := range rules {
				c.Rules = append(c.Rules, rule(holdfast.ScopeWorkspace, "w-site", "grant", r, false))
			}
			e.commit(c)
		}
		adds(holdfast.Untrusted, "Bash", "Edit")
		adds(holdfast.Trusted, "Edit", "Read")
		adds(holdfast.Untrusted, "Edit", "Read")
		for range 2 {
			list, err := e.Store.Rules(e.ctx, "w-site")
			e.ok(err)
			got := map[string]holdfast.Trust{}
			for _, r := range list {
				got[r.Rule] = r.Trust
			}
			same(e, "trust", got, map[string]holdfast.Trust{"Bash": holdfast.Untrusted, "Edit": holdfast.Trusted, "Read": holdfast.Trusted})
			e.Store = e.Reopen(e.T)
		}
	}},
	{"loses questions and rules with their session, and no others", func(e *env) {
		gone, stays := e.newSession(), e.newSession()
		var asked []*holdfast.Approval
		for _, id := range []holdfast.SessionID{gone, stays} {
			a := e.question(id, "u")
			e.ask(a)
			asked = append(asked, a)
			c := journal.NewChange(id)
			c.Rules = []journal.RuleChange{rule(holdfast.ScopeSession, string(id), "grant", "Bash", false), rule(holdfast.ScopeWorkspace, string(id), "grant", "LS", false)}
			e.commit(c)
		}
		e.move(gone, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, gone))
		_, err := e.Store.Approval(e.ctx, asked[0].ID)
		e.isKind(err, holdfast.KindNotFound)
		same(e, "rules", e.rules(holdfast.ScopeSession, string(gone)), []string{})
		same(e, "rules", e.rules(holdfast.ScopeWorkspace, string(gone)), []string{})
		same(e, "what is left", e.approvals(journal.ApprovalQuery{}), []holdfast.ApprovalID{asked[1].ID})
		same(e, "rules", e.rules(holdfast.ScopeSession, string(stays)), []string{"grant Bash me"})
	}},
	{"takes one of many answers at once", func(e *env) {
		id := e.newSession()
		a := e.question(id, "u")
		e.ask(a)
		var taken atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			to := []holdfast.ApprovalState{holdfast.ApprovalAllowed, holdfast.ApprovalDenied, holdfast.ApprovalExpired}[i%3]
			enc := e.leased(answers(a, to, num(i)))
			wg.Go(func() {
				if _, err := e.Store.Commit(e.ctx, enc); err == nil {
					taken.Add(1)
				} else if !holdfast.IsKind(err, holdfast.KindConflict) {
					e.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		equal(e, "taken", taken.Load(), int64(1))
		equal(e, "events", len(e.log(id)), 3)
	}},
}
