package approvals

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/policy"
)

// byApproval is the source of a decision that a person's answer made.
const byApproval = "approval"

// TurnConfig configures the questions of a turn. All fields must be set.
type TurnConfig struct {
	Session holdfast.SessionID
	ID      holdfast.TurnID
	// After is the position in the log from which on the turn's events stand.
	After int64
	// Again: the turn was cut off before, so that the store may have questions of it.
	Again bool
	// Log reads the session's events after a position.
	Log func(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error]
	// Commit commits a change of the session that build makes, with the facts of the turn that
	// wait. It fails when the turn is over.
	Commit func(ctx context.Context, build func(journal.Row, *journal.Change) error) error
	// Policy returns the policy that decided the call.
	Policy func() *policy.Engine
	// Wait is called when the turn begins to wait for an answer; the function that it returns, when it
	// goes on.
	Wait func() (goOn func())
	// Leaving is closed when the server shuts down; Await returns LetGo then.
	Leaving <-chan struct{}
	LetGo   error
	// At marks a named kill point for crash tests.
	At func(point string)
}

// Turn asks the questions of one turn. Safe for concurrent use.
type Turn struct {
	q   *Questions
	cfg TurnConfig
	// asked: the store may have questions of the turn.
	asked atomic.Bool
	// matched are the answers that decided a call of this run of the turn.
	matched sync.Map
}

// NewTurn makes the questions of a turn.
func (q *Questions) NewTurn(cfg TurnConfig) *Turn {
	t := &Turn{q: q, cfg: cfg}
	t.asked.Store(cfg.Again)
	return t
}

// Begin is called before each run of the turn: its calls are matched with the answers again.
func (t *Turn) Begin() { t.matched.Clear() }

// Approve implements policy.Approver (I-27): it asks a person, durably, and waits for the
// answer for as long as that takes. A question that was asked before, by this
// server or a former one, for the same call with the same input, is not asked
// again.
func (t *Turn) Approve(ctx context.Context, req policy.Request, asked policy.Decision) (policy.Decision, error) {
	if !json.Valid(req.Input) {
		return policy.Decision{Verdict: policy.Denied, By: byApproval, Reason: "its input cannot be read, so nobody was asked"}, nil
	}
	// The question stays, however often the server ends while it waits for a person.
	defer judging.Pause(ctx)()
	if req.Ready != nil {
		if err := req.Ready(); err != nil {
			return policy.Decision{}, err
		}
	}
	a, err := t.question(ctx, req, asked)
	if err != nil {
		return policy.Decision{}, err
	}
	if a.State == holdfast.ApprovalPending {
		t.cfg.At("asked")
		if a, err = t.await(ctx, a.ID); err != nil {
			return policy.Decision{}, err
		}
	}
	t.cfg.At("answered")
	return verdictOf(a), nil
}

// verdictOf returns the decision that an answer makes; everything but a clear yes denies.
func verdictOf(a holdfast.Approval) policy.Decision {
	d := policy.Decision{Verdict: policy.Denied, By: byApproval}
	switch a.State {
	case holdfast.ApprovalAllowed:
		d.Verdict = policy.Allowed
	case holdfast.ApprovalDenied:
		if d.Reason = "the user denied it"; a.Answer != "" {
			d.Reason += ": " + a.Answer
		}
	default:
		d.Reason = cmp.Or(a.Answer, "the question expired")
	}
	return d
}

// question finds the question for a call, or asks it.
func (t *Turn) question(ctx context.Context, req policy.Request, asked policy.Decision) (a holdfast.Approval, err error) {
	hash := holdfast.InputHash(req.Input)
	use := cmp.Or(req.CallID, "input-"+hash[:16])
	fresh := false
	err = t.cfg.Commit(context.WithoutCancel(ctx), func(_ journal.Row, c *journal.Change) error {
		row, err := t.q.cfg.Turns.Turn(ctx, t.cfg.Session, t.cfg.ID)
		if err != nil {
			return err
		}
		if row.Status != holdfast.TurnRunning {
			return t.cfg.LetGo // nobody would end the question
		}
		var found bool
		if a, found, err = t.before(ctx, c, req.Tool, use, hash); err != nil || found {
			return err
		}
		if a, err = t.newQuestion(ctx, req, asked, use, hash); err != nil {
			return err
		}
		fresh = true
		c.Approvals = append(c.Approvals, journal.ApprovalChange{Ask: &a})
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventApprovalAsked, Turn: t.cfg.ID, Data: a})
		// Even if the commit fails the store may have it.
		t.asked.Store(true)
		return nil
	})
	if err == nil && fresh {
		t.q.nudge()
	}
	return a, err
}

// before finds the question that was asked for the same call before and still counts. A pending
// one for another call under the same id is ended by the change.
func (t *Turn) before(ctx context.Context, c *journal.Change, tool, use, hash string) (holdfast.Approval, bool, error) {
	p, err := t.q.cfg.Store.Approvals(ctx, journal.ApprovalQuery{Turn: t.cfg.ID, ToolUse: use, Limit: 1000})
	if err != nil {
		return holdfast.Approval{}, false, err
	}
	for _, a := range slices.Backward(p.Approvals) {
		switch same := a.InputHash == hash && a.Tool == tool; {
		case same && a.State == holdfast.ApprovalPending:
			t.asked.Store(true)
			return a, true, nil
		case same:
			if used, err := t.used(ctx, a); err != nil || !used {
				return a, true, err
			}
		case a.State == holdfast.ApprovalPending:
			expire(c, a, "the call is another one now")
		}
	}
	return holdfast.Approval{}, false, nil
}

func (t *Turn) newQuestion(ctx context.Context, req policy.Request, asked policy.Decision, use, hash string) (holdfast.Approval, error) {
	id, err := t.q.cfg.NewID()
	now := t.q.cfg.Clock().UTC().Truncate(time.Millisecond)
	a := holdfast.Approval{
		ID: holdfast.ApprovalID(id), Session: t.cfg.Session, Turn: t.cfg.ID, ToolUseID: use, Tool: req.Tool, Input: req.Input, InputHash: hash,
		By: journal.Plain(asked.By), Rule: journal.Plain(asked.Rule), Reason: journal.Plain(asked.Reason),
		Suggestions: t.cfg.Policy().Suggest(ctx, req, asked), State: holdfast.ApprovalPending, AskedAt: now,
	}
	if t.q.cfg.Timeout > 0 {
		at := now.Add(t.q.cfg.Timeout)
		a.ExpiresAt = &at
	}
	return a, err
}

// used reports that an answer decided a call already: each answer counts for one.
func (t *Turn) used(ctx context.Context, a holdfast.Approval) (bool, error) {
	if _, twice := t.matched.LoadOrStore(a.ID, true); twice {
		return true, nil
	}
	since := false
	for ev, err := range t.cfg.Log(ctx, t.cfg.After) {
		if err != nil {
			return false, err
		}
		switch ev.Type {
		case holdfast.EventApprovalAsked:
			var d holdfast.Approval
			if err := ev.Decode(&d); err != nil {
				return false, err
			}
			since = since || d.ID == a.ID
		case holdfast.EventToolAllowed, holdfast.EventToolDenied:
			var d holdfast.ToolDecision
			if err := ev.Decode(&d); err != nil {
				return false, err
			}
			if since && d.ToolUseID == a.ToolUseID {
				return true, nil
			}
		}
	}
	return false, nil
}

// await waits for the end of a question. When the server shuts down it returns at once: the next
// start waits for the rest.
func (t *Turn) await(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	defer t.cfg.Wait()()
	for {
		// The bell comes first: an answer in between rings it.
		bell := t.q.bells.watch(id)
		a, err := t.q.cfg.Store.Approval(ctx, id)
		if ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
		if err != nil {
			return a, err
		}
		if a.State != holdfast.ApprovalPending {
			t.q.bells.ring(id)
			t.matched.Store(id, true)
			return a, nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-t.cfg.Leaving:
			return a, t.cfg.LetGo
		}
	}
}

// End ends, with the change that ends the turn, the questions that the turn leaves. The caller
// calls ended once the change is committed.
func (t *Turn) End(ctx context.Context, c *journal.Change) (ended func(), err error) {
	if !t.asked.Load() {
		return func() {}, nil
	}
	p, err := t.q.cfg.Store.Approvals(ctx, journal.ApprovalQuery{Turn: t.cfg.ID, State: holdfast.ApprovalPending, Limit: 1000})
	var ids []holdfast.ApprovalID
	for _, a := range p.Approvals {
		expire(c, a, "the turn ended before anybody answered")
		ids = append(ids, a.ID)
	}
	return func() { t.q.bells.ring(ids...) }, err
}

// expire adds the end of a question that nobody answered to a change.
func expire(c *journal.Change, a holdfast.Approval, why string) {
	c.Approvals = append(c.Approvals, journal.ApprovalChange{ID: a.ID, To: holdfast.ApprovalExpired, Answer: why})
	c.Events = append(c.Events, journal.Draft{Type: holdfast.EventApprovalExpired, Turn: a.Turn, Data: holdfast.ApprovalAnswered{
		ID: a.ID, ToolUseID: a.ToolUseID, State: holdfast.ApprovalExpired, Reason: why,
	}})
}
