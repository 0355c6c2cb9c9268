package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/policy"
)

// asks is a session whose Bash calls are asked for.
func (m *machine) asks() holdfast.SessionID {
	m.t.Helper()
	return m.create(holdfast.CreateSession{Mode: string(holdfast.ModeDefault)})
}

// pending waits until a session has a question that is open, and returns it.
func (m *machine) pending(id holdfast.SessionID) holdfast.Approval {
	m.t.Helper()
	var out []holdfast.Approval
	until(m.t, func() bool {
		p, err := m.Approvals(m.t.Context(), holdfast.ApprovalFilter{Session: string(id)})
		if err != nil {
			m.t.Fatal(err)
		}
		out = p.Approvals
		return len(out) > 0
	})
	if len(out) != 1 {
		m.t.Fatalf("%d questions are open: %+v", len(out), out)
	}
	return out[0]
}

func (m *machine) answer(a holdfast.Approval, req holdfast.AnswerApproval) holdfast.Approval {
	m.t.Helper()
	got, err := m.AnswerApproval(m.t.Context(), a.ID, req, "ada")
	if err != nil {
		m.t.Fatal(err)
	}
	return got
}

func (w *world) count(id holdfast.SessionID, typ holdfast.EventType) int {
	n := 0
	for _, t := range w.types(id) {
		if t == typ {
			n++
		}
	}
	return n
}

var (
	allow = holdfast.AnswerApproval{Decision: "allow"}
	deny  = holdfast.AnswerApproval{Decision: "deny", Reason: "not on a Friday"}
)

const touch = "echo line >> lines"

// A call that a mode wants asked waits for a person: the question is in the store
// and in the log, with what led to it, before anybody waits; the answer lets the
// tool run (SDK-P2).
func TestSDKP2_AnAllowedCallRuns(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	turn := m.send(id, script(bash(touch), say("done")))
	a := m.pending(id)
	if a.Tool != "Bash" || a.Turn != turn.ID || a.InputHash != policy.InputHash(a.Input) || a.By != "mode" || a.Reason == "" ||
		len(a.Suggestions) != 0 || a.ExpiresAt != nil || !strings.Contains(string(a.Input), "echo line") {
		t.Errorf("%+v", a)
	}
	until(t, func() bool { return m.count(id, holdfast.EventApprovalAsked) == 1 })
	types := m.types(id)
	if i, j := slices.Index(types, holdfast.EventToolRequested), slices.Index(types, holdfast.EventApprovalAsked); i < 0 || j < i {
		t.Errorf("asked before what led to it: %v", types)
	}
	until(t, func() bool {
		s, err := m.Session(t.Context(), id)
		return err == nil && s.PendingApprovals == 1
	})
	if m.lines(id, "lines") != 0 {
		t.Fatal("the tool ran before the answer")
	}
	got := m.answer(a, allow)
	if got.State != holdfast.ApprovalAllowed || got.AnsweredBy != "ada" || got.Scope != holdfast.ScopeOnce || got.AnsweredAt == nil {
		t.Errorf("%+v", got)
	}
	if end := m.ended(id, turn.ID); end.Result != "done" || m.lines(id, "lines") != 1 {
		t.Errorf("%+v, %d lines\n%s", end, m.lines(id, "lines"), m.dump(id))
	}
	d := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolAllowed)
	if len(d) != 1 || d[0].By != "approval" {
		t.Errorf("%+v", d)
	}
	m.sound(id)
}

// The model reads why it was denied, and nothing runs (SDK-P2).
func TestSDKP2_ADenialIsRead(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	turn := m.send(id, script(bash(touch), say("done")))
	m.answer(m.pending(id), deny)
	m.ended(id, turn.ID)
	d := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied)
	if len(d) != 1 || d[0].Reason != "the user denied it: not on a Friday" || m.lines(id, "lines") != 0 {
		t.Errorf("%+v\n%s", d, m.dump(id))
	}
}

// A question is answered once; the second answer hears of the first (SDK-P17).
func TestApprovalAnsweredOnce(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	turn := m.send(id, script(bash(touch), say("done")))
	a := m.pending(id)
	var taken atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			req := allow
			if i%2 == 1 {
				req = deny
			}
			_, err := m.AnswerApproval(context.WithoutCancel(t.Context()), a.ID, req, fmt.Sprint("person ", i))
			switch {
			case err == nil:
				taken.Add(1)
			case !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "already by"):
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	m.ended(id, turn.ID)
	now, err := m.Approval(t.Context(), a.ID)
	if err != nil || taken.Load() != 1 {
		t.Fatalf("%d answers were taken, %v", taken.Load(), err)
	}
	if ran := m.lines(id, "lines") == 1; ran != (now.State == holdfast.ApprovalAllowed) || m.count(id, holdfast.EventApprovalAnswered) != 1 {
		t.Errorf("%s, ran %v\n%s", now.State, ran, m.dump(id))
	}
}

// Silence is a denial, whose reason the model reads (decisions.md, Permission mode).
func TestApprovalExpiresToDeny(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { c.Turns.ApprovalTimeout = 30 * time.Millisecond } })
	id := m.asks()
	m.run(id, script(bash(touch), say("done")))
	d := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied)
	if len(d) != 1 || d[0].Reason != "nobody answered within 30ms" || m.lines(id, "lines") != 0 || m.count(id, holdfast.EventApprovalExpired) != 1 {
		t.Errorf("%+v\n%s", d, m.dump(id))
	}
	p, err := m.Approvals(t.Context(), holdfast.ApprovalFilter{State: "all"})
	if err != nil || len(p.Approvals) != 1 || p.Approvals[0].State != holdfast.ApprovalExpired {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = m.AnswerApproval(t.Context(), p.Approvals[0].ID, allow, "late")
	m.wantKind(err, holdfast.KindConflict)
}

// Of an answer and the expiry at the same moment one counts, and the tool runs
// only if it was an allowing answer.
func TestApprovalAnswerAgainstExpiry(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { c.Turns.ApprovalTimeout = 20 * time.Millisecond } })
	for range 10 {
		id := m.asks()
		turn := m.send(id, script(bash(touch), say("done")))
		var a holdfast.Approval
		until(t, func() bool {
			p, err := m.Approvals(t.Context(), holdfast.ApprovalFilter{Session: string(id), State: "all"})
			if err != nil || len(p.Approvals) == 0 {
				return false
			}
			a = p.Approvals[0]
			return !time.Now().Before(a.ExpiresAt.Add(-time.Millisecond))
		})
		_, err := m.AnswerApproval(t.Context(), a.ID, allow, "ada")
		m.ended(id, turn.ID)
		if ran := m.lines(id, "lines") == 1; ran != (err == nil) {
			t.Errorf("ran %v, the answer: %v\n%s", ran, err, m.dump(id))
		}
	}
}

// What expired while the server was down is ended before any turn goes on.
func TestApprovalExpiredWhileAway(t *testing.T) {
	var ahead atomic.Int64
	m := newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) {
			c.Turns.ApprovalTimeout = time.Hour
			c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		}
	})
	id := m.asks()
	turn := m.send(id, script(bash(touch), say("done")))
	a := m.pending(id)
	m.stop(false)
	ahead.Store(int64(2 * time.Hour))
	m.start()
	m.ended(id, turn.ID)
	now, err := m.Approval(t.Context(), a.ID)
	if err != nil || now.State != holdfast.ApprovalExpired || m.lines(id, "lines") != 0 || m.count(id, holdfast.EventApprovalAsked) != 1 {
		t.Errorf("%+v, %v\n%s", now, err, m.dump(id))
	}
}

// A question outlives the server: the next one waits on, asks nobody twice, and
// takes an answer that was given while nobody waited (HZ-15).
//
// WS-P19.
func TestHZ15_ApprovalOutlivesTheServer(t *testing.T) {
	for name, req := range map[string]holdfast.AnswerApproval{"allow": allow, "deny": deny} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.asks()
			turn := m.send(id, script(bash(touch), say("done")))
			a := m.pending(id)
			m.restart()
			if again := m.pending(id); again.ID != a.ID {
				t.Fatalf("asked again: %+v", again)
			}
			m.restart()
			until(t, func() bool { s, err := m.Session(t.Context(), id); return err == nil && s.PendingApprovals == 1 })
			m.answer(a, req)
			m.ended(id, turn.ID)
			want := 0
			if req.Decision == "allow" {
				want = 1
			}
			if m.lines(id, "lines") != want || m.count(id, holdfast.EventApprovalAsked) != 1 {
				t.Errorf("%d lines, %d wanted\n%s", m.lines(id, "lines"), want, m.dump(id))
			}
			m.sound(id)
		})
	}
}

// An answer that nobody acted on before the server went away counts at the next
// start, and once.
func TestApprovalMatchedOnceAfterARestart(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	turn := m.send(id, script(bash(touch), say("done")))
	a := m.pending(id)
	// The verdict is not recorded any more: as if killed after the answer.
	m.refuseWhile(func(c journal.Encoded) bool { return has(c, holdfast.EventToolAllowed) || has(c, holdfast.EventNotice) })
	m.answer(a, allow)
	until(t, func() bool { return m.refused.Load() > 0 })
	m.stop(false)
	m.acceptAll()
	m.start()
	m.ended(id, turn.ID)
	if m.lines(id, "lines") != 1 || m.count(id, holdfast.EventApprovalAsked) != 1 || m.count(id, holdfast.EventToolAllowed) != 1 {
		t.Errorf("%d lines\n%s", m.lines(id, "lines"), m.dump(id))
	}
}

// A turn that ends takes its open questions with it, in the transaction of its
// end.
func TestApprovalEndsWithItsTurn(t *testing.T) {
	for name, end := range map[string]func(m *machine, id holdfast.SessionID) error{
		"interrupt": func(m *machine, id holdfast.SessionID) error { _, err := m.Interrupt(m.t.Context(), id); return err },
		"end": func(m *machine, id holdfast.SessionID) error {
			_, err := m.End(m.t.Context(), id, holdfast.EndSession{Interrupt: true})
			return err
		},
		"message": func(m *machine, id holdfast.SessionID) error {
			m.ended(id, m.sendAs(id, holdfast.SendMessage{Text: "hello", Mode: string(holdfast.SendInterrupt)}).ID)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.asks()
			turn := m.send(id, script(bash(touch), say("done")))
			a := m.pending(id)
			if err := end(m, id); err != nil {
				t.Fatal(err)
			}
			if got := m.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
				t.Errorf("%+v", got)
			}
			now, err := m.Approval(t.Context(), a.ID)
			if err != nil || now.State != holdfast.ApprovalExpired || m.lines(id, "lines") != 0 {
				t.Errorf("%+v, %v\n%s", now, err, m.dump(id))
			}
			_, err = m.AnswerApproval(t.Context(), a.ID, allow, "late")
			m.wantKind(err, holdfast.KindConflict)
			m.sound(id)
		})
	}
}

// A session that is deleted leaves no question.
func TestApprovalGoesWithItsSession(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	m.send(id, script(bash(touch)))
	a := m.pending(id)
	if err := m.Delete(t.Context(), id, holdfast.EndSession{Interrupt: true, Purge: true}); err != nil {
		t.Fatal(err)
	}
	_, err := m.Approval(t.Context(), a.ID)
	m.wantKind(err, holdfast.KindNotFound)
}

// A turn that waits for a person is not a stuck one, and holds no box (HZ-15).
func TestHZ15_WaitingHoldsNoBox(t *testing.T) {
	c := newClock()
	m := newMachine(t, func(m *machine) {
		m.set = func(cfg *engine.Config) { cfg.Clock, cfg.Turns.Silence = c.now, silence }
		m.pool = func(c *pool.Config) { c.FreezeAfter, c.StopAfter = -1, 20*time.Millisecond }
	})
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash("echo warm"), say("x")))
	m.ended(id, turn.ID)
	mode := string(holdfast.ModeDefault)
	if _, err := m.Update(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	turn = m.send(id, script(step{"tool": "Read", "input": step{"file_path": "CLAUDE.md"}}, bash(touch), say("done")))
	a := m.pending(id)
	until(t, func() bool {
		list, err := m.Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(list, func(c holdfast.Container) bool { return c.State == holdfast.BoxRunning })
	})
	c.move(10 * silence)
	c.looked(t)
	if got, err := m.Turn(t.Context(), id, turn.ID); err != nil || got.Status != holdfast.TurnRunning {
		t.Fatalf("%+v, %v\n%s", got, err, m.dump(id))
	}
	m.answer(a, allow)
	if got := m.ended(id, turn.ID); got.Result != "done" || m.lines(id, "lines") != 1 {
		t.Errorf("%+v\n%s", got, m.dump(id))
	}
}

// The answers for longer than once: the rule is granted in the transaction of the
// answer, holds for the calls that it covers, also after a restart, and for no
// other; it lifts no rule of deny (SDK-P18).
func TestApprovalScopes(t *testing.T) {
	for _, scope := range []holdfast.ApprovalScope{holdfast.ScopeSession, holdfast.ScopeWorkspace} {
		t.Run(string(scope), func(t *testing.T) {
			deny, err := policy.ParseRules(nil, nil, []string{"Bash(rm *)"})
			if err != nil {
				t.Fatal(err)
			}
			base, err := policy.New(policy.Config{Rules: deny})
			if err != nil {
				t.Fatal(err)
			}
			m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { c.Policy = base } })
			id := m.asks()
			turn := m.send(id, script(bash("touch one"), bash("touch one"), say("done")))
			a := m.pending(id)
			if !slices.Equal(a.Suggestions, []string{"Bash(touch one)"}) {
				t.Fatalf("suggestions %q", a.Suggestions)
			}
			m.answer(a, holdfast.AnswerApproval{Decision: "allow", Scope: scope})
			m.ended(id, turn.ID)
			if n := m.count(id, holdfast.EventApprovalAsked); n != 1 {
				t.Errorf("asked %d times\n%s", n, m.dump(id))
			}
			m.restart()
			turn = m.send(id, script(bash("touch one"), bash("touch two"), say("done")))
			m.answer(m.pending(id), holdfast.AnswerApproval{Decision: "allow", Scope: scope, Rules: []string{"Bash"}})
			m.ended(id, turn.ID)
			m.run(id, script(bash("touch three"), bash("rm one"), say("done")))
			if n := m.count(id, holdfast.EventApprovalAsked); n != 2 {
				t.Errorf("asked %d times\n%s", n, m.dump(id))
			}
			if d := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied); len(d) != 1 || d[0].Rule != "Bash(rm *)" {
				t.Errorf("%+v", d)
			}
			var granted []string
			for _, c := range datas[holdfast.RulesChanged](m.world, id, holdfast.EventRulesChanged) {
				granted = append(granted, fmt.Sprint(c.Changes))
			}
			if want := []string{fmt.Sprintf("[{%s grant Bash(touch one) false}]", scope), fmt.Sprintf("[{%s grant Bash false}]", scope)}; !slices.Equal(granted, want) {
				t.Errorf("granted %v, want %v", granted, want)
			}
			other := m.asks()
			m.send(other, script(bash("touch one"), say("done")))
			m.pending(other)
		})
	}
}

// TestAnAnswerGrantsAllItsRulesOrNone: the rules of an answer are recorded with it, and if
// there is no room for all of them the question stays open.
func TestAnAnswerGrantsAllItsRulesOrNone(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	change := func(removed bool, rules ...string) {
		t.Helper()
		c := journal.NewChange(id)
		for _, r := range rules {
			c.Rules = append(c.Rules, journal.RuleChange{Key: string(id), Source: "test", RuleChange: holdfast.RuleChange{
				Scope: holdfast.ScopeSession, Behavior: "grant", Rule: r, Removed: removed,
			}})
		}
		c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "test"}}}
		if _, err := m.journal.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	var full []string
	for i := range 999 {
		full = append(full, fmt.Sprintf("Bash(rule%d)", i))
	}
	change(false, full...)
	turn := m.send(id, script(bash("touch y && touch x"), bash("touch x; touch y"), bash("touch y"), say("done")))
	a := m.pending(id)
	want := []string{"Bash(touch y)", "Bash(touch x)"}
	if !slices.Equal(a.Suggestions, want) {
		t.Fatalf("suggestions %q", a.Suggestions)
	}
	_, err := m.AnswerApproval(t.Context(), a.ID, holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession}, "ada")
	m.wantKind(err, holdfast.KindTooLarge)
	if n := m.count(id, holdfast.EventRulesChanged) + m.count(id, holdfast.EventApprovalAnswered); n != 0 || m.pending(id).ID != a.ID {
		t.Errorf("a refused answer left a trace\n%s", m.dump(id))
	}
	change(true, full[0])
	m.answer(a, holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession})
	m.ended(id, turn.ID)
	answered := datas[holdfast.ApprovalAnswered](m.world, id, holdfast.EventApprovalAnswered)
	changed := datas[holdfast.RulesChanged](m.world, id, holdfast.EventRulesChanged)
	if len(answered) != 1 || !slices.Equal(answered[0].Granted, want) || len(changed) != 1 || len(changed[0].Changes) != 2 {
		t.Errorf("answered %+v, changed %+v", answered, changed)
	}
	m.send(id, script(bash("rm y"), say("done")))
	m.pending(id)
}

func TestApprovalAnswersThatMakeNoSense(t *testing.T) {
	m := newMachine(t, nil)
	id := m.asks()
	m.send(id, script(bash("echo a > b"), say("done")))
	a := m.pending(id)
	for _, req := range []holdfast.AnswerApproval{
		{},
		{Decision: "yes"},
		{Decision: "allow", Scope: "ever"},
		{Decision: "deny", Scope: holdfast.ScopeOnce},
		{Decision: "deny", Rules: []string{"Bash"}},
		{Decision: "allow", Rules: []string{"Bash"}},
		{Decision: "allow", Scope: "session", Rules: []string{"Bash("}},
		{Decision: "allow", Scope: "session", Rules: []string{"Bash", "a\x00"}},
		{Decision: "allow", Scope: "session", Rules: []string{"Bash", "Nope"}},
		{Decision: "allow", Scope: "session"},
		{Decision: "deny", Reason: strings.Repeat("x", 2001)},
		{Decision: "deny", Reason: "\xff"},
	} {
		_, err := m.AnswerApproval(t.Context(), a.ID, req, "ada")
		if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%+v: %v, hint %q", req, err, holdfast.HintOf(err))
		}
	}
	_, err := m.AnswerApproval(t.Context(), "01890a5d-ac96-774b-bcce-b302099a8057", allow, "ada")
	m.wantKind(err, holdfast.KindNotFound)
	_, err = m.Approvals(t.Context(), holdfast.ApprovalFilter{State: "maybe"})
	m.wantKind(err, holdfast.KindInvalid)
	if now := m.pending(id); now.ID != a.ID {
		t.Errorf("%+v", now)
	}
}
