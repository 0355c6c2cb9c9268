// Package approvals asks people to approve tool calls, stores the questions durably, and records
// the answers.
//
// The engine owns the Questions of the server and creates a Turn for each turn. The package imports
// internal/journal, internal/judging and policy. Invariant (I-27): a question is in the log before
// anybody can answer it; the same call with the same input is asked about only once, even if the
// server restarts; and each question gets one answer, which decides one call.
package approvals

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// Store reads the stored questions.
type Store interface {
	// Approval returns one question; not_found for an unknown id.
	Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error)
	// Approvals returns a page of questions, the oldest first.
	Approvals(ctx context.Context, q journal.ApprovalQuery) (journal.ApprovalPage, error)
	// NextExpiry returns when the next pending question expires; the zero time means never.
	NextExpiry(ctx context.Context) (time.Time, error)
}

// Sessions reads sessions, and the turns whose calls are asked about.
type Sessions interface {
	// Row returns one session.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Turn returns one turn of a session.
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
}

// Rules reads the permission rules that were added to sessions and workspaces.
type Rules interface {
	// Added returns the rules that answers, hooks and the policy added to a session and its workspace.
	Added(ctx context.Context, row journal.Row) ([]journal.Rule, error)
	// Room returns the key under which the rules of a session in a scope are stored. It fails with
	// too_large if so many more rules would exceed the limit.
	Room(ctx context.Context, row journal.Row, scope holdfast.ApprovalScope, more int) (key string, err error)
}

// Config configures Questions. All but Timeout must be set.
type Config struct {
	Store    Store
	Sessions Sessions
	Journal  *journal.Journal
	// Policy is the server's policy, which reads the rules in answers.
	Policy *policy.Engine
	Rules  Rules
	// Timeout is how long a question stays open before it expires, which denies the call. 0 means
	// without limit.
	Timeout time.Duration
	NewID   func() (string, error)
	Clock   func() time.Time
	Log     *slog.Logger
}

// Questions manages the approval questions of all sessions. Safe for concurrent use.
type Questions struct {
	cfg   Config
	bells bells
}

// New makes Questions.
func New(cfg Config) *Questions {
	return &Questions{cfg: cfg, bells: bells{expiry: make(chan struct{}, 1)}}
}

// bells wakes the goroutines that wait for an answer. expiry wakes the loop that expires questions.
type bells struct {
	expiry chan struct{}

	mu sync.Mutex
	at map[holdfast.ApprovalID]chan struct{}
}

// watch returns a channel that is closed when the question is answered or expires.
func (b *bells) watch(id holdfast.ApprovalID) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil {
		b.at = map[holdfast.ApprovalID]chan struct{}{}
	}
	if b.at[id] == nil {
		b.at[id] = make(chan struct{})
	}
	return b.at[id]
}

// ring wakes the goroutines that wait for the questions, and removes their channels.
func (b *bells) ring(ids ...holdfast.ApprovalID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if ch := b.at[id]; ch != nil {
			close(ch)
			delete(b.at, id)
		}
	}
}

// Approvals lists questions, the oldest first; pending ones unless the filter names another state.
func (q *Questions) Approvals(ctx context.Context, f holdfast.ApprovalFilter) (holdfast.ApprovalPage, error) {
	query := journal.ApprovalQuery{State: holdfast.ApprovalPending, IDPrefix: f.IDPrefix, Cursor: f.Cursor, Limit: f.Limit}
	var err error
	switch f.State {
	case "":
	case "all":
		query.State = ""
	default:
		query.State = holdfast.ApprovalState(f.State)
		if !slices.Contains(holdfast.Words[holdfast.ApprovalState](), query.State) {
			return holdfast.ApprovalPage{}, holdfast.Errorf(holdfast.KindInvalid, "approval state", "%s is not the state of an approval", holdfast.Quote(f.State)).
				WithHint("use the state pending, allowed, denied, expired or all")
		}
	}
	if f.Session != "" {
		if query.Session, err = holdfast.Parse[holdfast.SessionID](f.Session); err != nil {
			return holdfast.ApprovalPage{}, err
		}
	}
	p, err := q.cfg.Store.Approvals(ctx, query)
	return holdfast.ApprovalPage{Approvals: p.Approvals, Next: p.Next}, err
}

// all returns all questions that a query selects, the oldest first.
func (q *Questions) all(ctx context.Context, query journal.ApprovalQuery) (list []holdfast.Approval, err error) {
	for a, err := range journal.EachApproval(ctx, q.cfg.Store.Approvals, query) {
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// Approval returns one question; not_found for an unknown id.
func (q *Questions) Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	return q.cfg.Store.Approval(ctx, id)
}

// AnswerApproval records the answer to a question; by names who answers. The answer is durable when AnswerApproval
// returns. A question that was answered or has expired before is a conflict; the error quotes how it ended.
func (q *Questions) AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval, by string) (holdfast.Approval, error) {
	to, err := q.parse(req)
	if err != nil {
		return holdfast.Approval{}, err
	}
	a, err := q.cfg.Store.Approval(ctx, id)
	if err != nil {
		return a, err
	}
	if a.ExpiresAt != nil && !q.cfg.Clock().Before(*a.ExpiresAt) && a.State == holdfast.ApprovalPending {
		// The question has expired, but the loop has not recorded that yet.
		if err := q.expireOne(ctx, a); err != nil {
			return a, err
		}
	}
	if _, err = q.cfg.Journal.CommitAt(ctx, a.Session, func(row journal.Row, c *journal.Change) error {
		return q.answer(ctx, row, c, a, to, req, by)
	}); err != nil {
		return a, err
	}
	q.bells.ring(id)
	return q.cfg.Store.Approval(ctx, id)
}

// answer adds an answer, and the rules that it grants, to a change of the session.
func (q *Questions) answer(ctx context.Context, row journal.Row, c *journal.Change, a holdfast.Approval, to holdfast.ApprovalState, req holdfast.AnswerApproval, by string) (err error) {
	ev := holdfast.ApprovalAnswered{ID: a.ID, ToolUseID: a.ToolUseID, State: to, By: by, Reason: req.Reason}
	var granted []journal.RuleChange
	if to == holdfast.ApprovalAllowed {
		ev.Scope = cmp.Or(req.Scope, holdfast.ScopeOnce)
	}
	if ev.Scope == holdfast.ScopeSession || ev.Scope == holdfast.ScopeWorkspace {
		if ev.Granted, err = q.grants(a, req, ev.Scope); err != nil {
			return err
		}
		key, err := q.cfg.Rules.Room(ctx, row, ev.Scope, len(ev.Granted))
		if err != nil {
			return err
		}
		for _, rule := range ev.Granted {
			change := holdfast.RuleChange{Scope: ev.Scope, Behavior: "grant", Rule: rule}
			granted = append(granted, journal.RuleChange{Key: key, Source: string(a.ID), RuleChange: change})
		}
	}
	c.Approvals = []journal.ApprovalChange{{ID: a.ID, To: to, By: by, Scope: ev.Scope, Answer: req.Reason}}
	c.Events = []journal.Draft{{Type: holdfast.EventApprovalAnswered, Turn: a.Turn, Data: ev}}
	if len(granted) > 0 {
		c.ChangeRules(a.Turn, string(a.ID), granted)
	}
	return nil
}

// grants returns the rules that an answer grants, each once: the rules that it names, or else the
// suggested ones.
func (q *Questions) grants(a holdfast.Approval, req holdfast.AnswerApproval, scope holdfast.ApprovalScope) ([]string, error) {
	texts := req.Rules
	if len(texts) == 0 {
		texts = a.Suggestions
	}
	if len(texts) == 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "approval", "the answer names no rules, and none are suggested for this call, so scope %s has nothing to grant", scope).
			WithHint("name rules, as in: holdfast approvals allow %s --scope %s --rule 'Bash(git *)'; or allow the call once", a.ID, scope)
	}
	var out []string
	for _, text := range texts {
		rule, err := q.cfg.Policy.ParseRule(text)
		if err != nil {
			return nil, err
		}
		if s := rule.String(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// parse checks an answer without looking at its question, and returns the state that the answer gives the question.
func (q *Questions) parse(req holdfast.AnswerApproval) (holdfast.ApprovalState, error) {
	if err := req.Check(); err != nil {
		return "", err
	}
	for _, rule := range req.Rules {
		if _, err := q.cfg.Policy.ParseRule(rule); err != nil {
			return "", err
		}
	}
	if req.Decision == "deny" {
		return holdfast.ApprovalDenied, nil
	}
	return holdfast.ApprovalAllowed, nil
}
