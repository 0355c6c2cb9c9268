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

// byApproval is the By of a decision that came from a person's answer.
const byApproval = "approval"

// TurnConfig configures the questions of a turn. All fields must be set.
type TurnConfig struct {
	Session holdfast.SessionID
	ID      holdfast.TurnID
	// After is the sequence number before the turn's first event.
	After int64
	// Again is true if the turn continues after a restart, so that the store may already hold
	// questions of it.
	Again bool
	// Log reads the session's events after a sequence number.
	Log func(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error]
	// Commit commits a change that build makes from the session's row, together with the turn's
	// pending facts. It fails once the turn is over.
	Commit func(ctx context.Context, build func(journal.Row, *journal.Change) error) error
	// Policy returns the policy that decided the call; it suggests the rules for an answer.
	Policy func() *policy.Engine
	// Wait is called when the turn begins to wait for an answer; the function that it returns is
	// called when the turn continues.
	Wait func() (goOn func())
	// Leaving is closed when the server shuts down; waiting then ends with the error LetGo.
	Leaving <-chan struct{}
	LetGo   error
	// At is called when a named point is passed, for crash tests.
	At func(point string)
}

// Turn asks the questions of one turn. Safe for concurrent use.
type Turn struct {
	q   *Questions
	cfg TurnConfig
	// asked is true if the store may hold questions of the turn.
	asked atomic.Bool
	// matched holds the ids of the answers that already decided a call in this run of the turn.
	matched sync.Map
}

// NewTurn returns the Turn that asks the questions of one turn.
func (q *Questions) NewTurn(cfg TurnConfig) *Turn {
	t := &Turn{q: q, cfg: cfg}
	t.asked.Store(cfg.Again)
	return t
}

// Begin is called before each run of the turn. It forgets which answers were used, because the
// calls are decided again.
func (t *Turn) Begin() { t.matched.Clear() }

// Approve implements policy.Approver (I-27): it records a question to a person and waits for the answer, however long
// that takes. If the same call with the same input was asked about before, even before a restart, and the answer
// decided no call yet, that question is used instead of a new one. An input that is not valid JSON is denied without a
// question.
func (t *Turn) Approve(ctx context.Context, req policy.Request, asked policy.Decision) (policy.Decision, error) {
	if !json.Valid(req.Input) {
		return policy.Decision{Verdict: policy.Denied, By: byApproval, Reason: "the input of the call is not valid JSON, so nobody was asked"}, nil
	}
	// Waiting for a person does not count as judging: a server that ends meanwhile did not crash
	// because of this call.
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

// verdictOf returns the decision that follows from an ended question: allowed if the answer allows
// it, denied otherwise.
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

// question returns the question for a call: an earlier one, or a new one that it records.
func (t *Turn) question(ctx context.Context, req policy.Request, asked policy.Decision) (a holdfast.Approval, err error) {
	hash := policy.InputHash(req.Input)
	use := cmp.Or(req.CallID, "input-"+hash[:16])
	fresh := false
	err = t.cfg.Commit(context.WithoutCancel(ctx), func(_ journal.Row, c *journal.Change) error {
		row, err := t.q.cfg.Sessions.Turn(ctx, t.cfg.Session, t.cfg.ID)
		if err != nil {
			return err
		}
		if row.Status != holdfast.TurnRunning {
			return t.cfg.LetGo // the turn has ended: nothing would ever end the question
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
		// Set asked before the commit: a commit that fails may have been written too.
		t.asked.Store(true)
		return nil
	})
	if err == nil && fresh {
		t.q.nudge()
	}
	return a, err
}

// before returns an earlier question about the same call that is still pending, or whose answer has not decided a call
// yet. It expires, with the change c, a pending question for a different call under the same id.
func (t *Turn) before(ctx context.Context, c *journal.Change, tool, use, hash string) (holdfast.Approval, bool, error) {
	asked, err := t.q.all(ctx, journal.ApprovalQuery{Turn: t.cfg.ID, ToolUse: use})
	if err != nil {
		return holdfast.Approval{}, false, err
	}
	for _, a := range slices.Backward(asked) {
		switch same := a.InputHash == hash && a.Tool == tool; {
		case same && a.State == holdfast.ApprovalPending:
			t.asked.Store(true)
			return a, true, nil
		case same:
			if used, err := t.used(ctx, a); err != nil || !used {
				return a, true, err
			}
		case a.State == holdfast.ApprovalPending:
			expire(c, a, "the agent made another call with the same id")
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

// used reports whether an answer has already decided a call: each answer decides only one.
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

// await waits until a question is answered or expires. At shutdown it returns LetGo at once, and
// the next start waits again.
func (t *Turn) await(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	defer t.cfg.Wait()()
	for {
		// Watch before reading the question, so that an answer in between is not missed.
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

// End adds the expiry of the turn's pending questions to the change that ends the turn. The caller
// calls ended once the change is committed.
func (t *Turn) End(ctx context.Context, c *journal.Change) (ended func(), err error) {
	if !t.asked.Load() {
		return func() {}, nil
	}
	pending, err := t.q.all(ctx, journal.ApprovalQuery{Turn: t.cfg.ID, State: holdfast.ApprovalPending})
	var ids []holdfast.ApprovalID
	for _, a := range pending {
		expire(c, a, "the turn ended before anybody answered")
		ids = append(ids, a.ID)
	}
	return func() { t.q.bells.ring(ids...) }, err
}

// expire adds the expiry of a question to a change.
func expire(c *journal.Change, a holdfast.Approval, why string) {
	c.Approvals = append(c.Approvals, journal.ApprovalChange{ID: a.ID, To: holdfast.ApprovalExpired, Answer: why})
	c.Events = append(c.Events, journal.Draft{Type: holdfast.EventApprovalExpired, Turn: a.Turn, Data: holdfast.ApprovalAnswered{
		ID: a.ID, ToolUseID: a.ToolUseID, State: holdfast.ApprovalExpired, Reason: why,
	}})
}
