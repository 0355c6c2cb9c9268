package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/policy"
)

// byApproval is what a person's answer is called where it decides.
const byApproval = "approval"

// maxWhy bounds the reason of a question: it can come out of a box.
const maxWhy = 4 << 10

// bells wake who waits for an answer, and by expiry who ends the questions that get none.
type bells struct {
	expiry chan struct{}

	mu sync.Mutex
	at map[holdfast.ApprovalID]chan struct{}
}

// watch returns a channel that is closed when the question has ended.
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

// ring wakes who waits, and forgets the question.
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

// Approve implements policy.Approver (I-27): it asks a person, durably, and waits for the
// answer for as long as that takes. A question that was asked before, by this
// server or a former one, for the same call with the same input, is not asked
// again.
func (h *host) Approve(ctx context.Context, req policy.Request, asked policy.Decision) (policy.Decision, error) {
	if !json.Valid(req.Input) {
		return policy.Decision{Verdict: policy.Denied, By: byApproval, Reason: "its input cannot be read, so nobody was asked"}, nil
	}
	// The question stays, however often the server ends while it waits for a person.
	if j, ok := ctx.Value(judgement{}).(*judging.Judgement); ok {
		defer j.Pause()()
	}
	if req.Ready != nil {
		if err := req.Ready(); err != nil {
			return policy.Decision{}, err
		}
	}
	a, err := h.question(ctx, req, asked)
	if err != nil {
		return policy.Decision{}, err
	}
	if a.State == holdfast.ApprovalPending {
		h.At("asked")
		if a, err = h.await(ctx, a.ID); err != nil {
			return policy.Decision{}, err
		}
	}
	h.layers.Recorded()
	h.At("answered")
	return verdictOf(a), nil
}

// verdictOf is an answer as a decision; what is no clear yes denies.
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
		d.Reason = or(a.Answer, "the question expired")
	}
	return d
}

// question finds the question for a call, or asks it.
func (h *host) question(ctx context.Context, req policy.Request, asked policy.Decision) (holdfast.Approval, error) {
	e := h.e
	h.u.mu.Lock()
	defer h.u.mu.Unlock()
	if h.u.running != h.r {
		return holdfast.Approval{}, errLetGo
	}
	if err := h.usable(); err != nil {
		return holdfast.Approval{}, err
	}
	hash := holdfast.InputHash(req.Input)
	use := or(req.CallID, "input-"+hash[:16])
	before, err := e.cfg.Store.Approvals(ctx, journal.ApprovalQuery{Turn: h.r.id, ToolUse: use, Limit: 1000})
	if err != nil {
		return holdfast.Approval{}, err
	}
	c := journal.NewChange(h.u.id)
	for _, a := range slices.Backward(before.Approvals) {
		switch same := a.InputHash == hash && a.Tool == req.Tool; {
		case same && a.State == holdfast.ApprovalPending:
			h.questions.Store(true)
			return a, nil
		case same:
			if used, err := h.used(ctx, a); err != nil || !used {
				return a, err
			}
		case a.State == holdfast.ApprovalPending:
			expire(&c, a, "the call is another one now")
		}
	}
	a, err := h.newQuestion(ctx, req, asked, use, hash)
	if err != nil {
		return a, err
	}
	c.Approvals = append(c.Approvals, journal.ApprovalChange{Ask: &a})
	c.Events = append(c.Events, journal.Draft{Type: holdfast.EventApprovalAsked, Turn: h.r.id, Data: a})
	// Once it is asked it has to be known here.
	h.questions.Store(true)
	h.alive()
	// What hooks said before it is asked is said once, however long the answer takes.
	k := h.hooked()
	owed := k.take()
	c.Events = append(owed, c.Events...)
	done, err := e.cfg.Journal.Commit(context.WithoutCancel(ctx), c)
	if err != nil {
		k.owe(owed)
		if holdfast.IsKind(err, holdfast.KindUnavailable) {
			h.torn.Store(true)
		}
		return a, err
	}
	k.recorded(done.Events)
	e.nudgeExpiry()
	return a, nil
}

func (h *host) newQuestion(ctx context.Context, req policy.Request, asked policy.Decision, use, hash string) (holdfast.Approval, error) {
	id, err := h.e.uuid()
	decides := h.layers.Current()
	if decides == nil {
		decides = h.e.cfg.Policy
	}
	now := h.e.cfg.Clock().UTC().Truncate(time.Millisecond)
	a := holdfast.Approval{
		ID: holdfast.ApprovalID(id), Session: h.u.id, Turn: h.r.id, ToolUseID: use, Tool: req.Tool, Input: req.Input, InputHash: hash,
		By: plainText(asked.By), Rule: plainText(asked.Rule), Reason: plainText(asked.Reason), Suggestions: decides.Suggest(ctx, req, asked),
		State: holdfast.ApprovalPending, AskedAt: now,
	}
	if h.e.cfg.ApprovalTimeout > 0 {
		at := now.Add(h.e.cfg.ApprovalTimeout)
		a.ExpiresAt = &at
	}
	return a, err
}

// plainText is a text that any store keeps, of bounded length.
func plainText(s string) string {
	if len(s) > maxWhy {
		s = s[:maxWhy]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// used reports that an answer decided a call already: each answer counts for one.
func (h *host) used(ctx context.Context, a holdfast.Approval) (bool, error) {
	if _, twice := h.matched.LoadOrStore(a.ID, true); twice {
		return true, nil
	}
	since := false
	for ev, err := range h.Log(ctx, h.r.messageSeq-1) {
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

// await waits for the end of a question. A turn that waits gives its box back unless
// it lives there, is no stuck one, and lets go at once when the server shuts down:
// the next start waits for the rest.
func (h *host) await(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	began := h.e.cfg.Clock()
	h.waiting.Add(1)
	defer func() {
		h.alive()
		h.acc.Waited(h.e.cfg.Clock().Sub(began))
		h.waiting.Add(-1)
	}()
	if _, resident := h.e.runtimes[h.row.Runtime].(runtime.Resident); !resident {
		h.giveBack()
	}
	for {
		// The bell comes first: an answer in between rings it.
		bell := h.e.bells.watch(id)
		a, err := h.e.cfg.Store.Approval(ctx, id)
		if ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
		if err != nil {
			return a, err
		}
		if a.State != holdfast.ApprovalPending {
			h.e.bells.ring(id)
			h.matched.Store(id, true)
			return a, nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case <-h.e.leaving:
			return a, errLetGo
		}
	}
}

// expire adds the end of a question that nobody answered to a change.
func expire(c *journal.Change, a holdfast.Approval, why string) {
	c.Approvals = append(c.Approvals, journal.ApprovalChange{ID: a.ID, To: holdfast.ApprovalExpired, Answer: why})
	c.Events = append(c.Events, journal.Draft{Type: holdfast.EventApprovalExpired, Turn: a.Turn, Data: holdfast.ApprovalAnswered{
		ID: a.ID, ToolUseID: a.ToolUseID, State: holdfast.ApprovalExpired, Reason: why,
	}})
}

// open lists the questions that a turn leaves when it ends.
func (e *Engine) open(ctx context.Context, r *turnRun) ([]holdfast.Approval, error) {
	if !r.again && !r.host.questions.Load() {
		return nil, nil
	}
	p, err := e.cfg.Store.Approvals(ctx, journal.ApprovalQuery{Turn: r.id, State: holdfast.ApprovalPending, Limit: 1000})
	return p.Approvals, err
}

// Approvals lists questions to persons, the longest asked first.
func (e *Engine) Approvals(ctx context.Context, f holdfast.ApprovalFilter) (holdfast.ApprovalPage, error) {
	q := journal.ApprovalQuery{State: holdfast.ApprovalPending, IDPrefix: f.IDPrefix, Cursor: f.Cursor, Limit: f.Limit}
	var err error
	switch f.State {
	case "":
	case "all":
		q.State = ""
	default:
		if q.State, err = holdfast.ParseApprovalState(f.State); err != nil {
			return holdfast.ApprovalPage{}, err
		}
	}
	if f.Session != "" {
		if q.Session, err = holdfast.ParseSessionID(f.Session); err != nil {
			return holdfast.ApprovalPage{}, err
		}
	}
	p, err := e.cfg.Store.Approvals(ctx, q)
	return holdfast.ApprovalPage{Approvals: p.Approvals, Next: p.Next}, err
}

// Approval is one question.
func (e *Engine) Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	return e.cfg.Store.Approval(ctx, id)
}

// AnswerApproval answers a question, once: a second answer is conflict and quotes
// the first. It is durable when AnswerApproval returns; by is who answers.
func (e *Engine) AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval, by string) (holdfast.Approval, error) {
	to, err := e.parseAnswer(req)
	if err != nil {
		return holdfast.Approval{}, err
	}
	a, err := e.cfg.Store.Approval(ctx, id)
	if err != nil {
		return a, err
	}
	u := e.lock(a.Session)
	defer e.unlock(u)
	if a.ExpiresAt != nil && !e.cfg.Clock().Before(*a.ExpiresAt) && a.State == holdfast.ApprovalPending {
		// Its time is over, though the timer has not come by yet.
		if err := e.expireOne(ctx, a); err != nil {
			return a, err
		}
	}
	c, err := e.answer(ctx, a, to, req, by)
	if err != nil {
		return a, err
	}
	if _, err := e.cfg.Journal.Commit(ctx, c); err != nil {
		return a, err
	}
	if len(c.Rules) > 0 {
		u.rules.Add(1)
	}
	e.bells.ring(id)
	return e.cfg.Store.Approval(ctx, id)
}

// answer is the change that an answer makes.
func (e *Engine) answer(ctx context.Context, a holdfast.Approval, to holdfast.ApprovalState, req holdfast.AnswerApproval, by string) (journal.Change, error) {
	c := journal.NewChange(a.Session)
	ev := holdfast.ApprovalAnswered{ID: a.ID, ToolUseID: a.ToolUseID, State: to, By: by, Reason: req.Reason}
	var more []journal.Draft
	if to == holdfast.ApprovalAllowed {
		ev.Scope = holdfast.ApprovalScope(or(string(req.Scope), string(holdfast.ScopeOnce)))
	}
	if ev.Scope == holdfast.ScopeSession || ev.Scope == holdfast.ScopeWorkspace {
		row, err := e.cfg.Store.Row(ctx, a.Session)
		if err != nil {
			return c, err
		}
		if ev.Granted, err = e.grants(a, req, ev.Scope); err != nil {
			return c, err
		}
		var changes []holdfast.RuleChange
		for _, rule := range ev.Granted {
			change := holdfast.RuleChange{Scope: ev.Scope, Behavior: "grant", Rule: rule}
			changes = append(changes, change)
			c.Rules = append(c.Rules, journal.RuleChange{Key: permit.Key(row, ev.Scope), Source: string(a.ID), RuleChange: change})
		}
		if err := e.agents.policies.Room(ctx, ev.Scope, permit.Key(row, ev.Scope), len(changes)); err != nil {
			return c, err
		}
		more = []journal.Draft{{Type: holdfast.EventRulesChanged, Turn: a.Turn, Data: holdfast.RulesChanged{By: string(a.ID), Changes: changes}}}
	}
	c.Approvals = []journal.ApprovalChange{{ID: a.ID, To: to, By: by, Scope: ev.Scope, Answer: req.Reason}}
	c.Events = append([]journal.Draft{{Type: holdfast.EventApprovalAnswered, Turn: a.Turn, Data: ev}}, more...)
	return c, nil
}

// grants are the rules that an answer grants, each once: those that it names, else the
// suggested ones.
func (e *Engine) grants(a holdfast.Approval, req holdfast.AnswerApproval, scope holdfast.ApprovalScope) ([]string, error) {
	texts := req.Rules
	if len(texts) == 0 {
		texts = a.Suggestions
	}
	if len(texts) == 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "approval", "no rules cover exactly this call, so there is none to grant for scope %s", scope).
			WithHint("name rules, as in: holdfast approvals allow %s --scope %s --rule 'Bash(git *)'; or allow it once", a.ID, scope)
	}
	var out []string
	for _, text := range texts {
		rule, err := e.cfg.Policy.ParseRule(text)
		if err != nil {
			return nil, err
		}
		if s := rule.String(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// parseAnswer checks an answer that is not yet about anything.
func (e *Engine) parseAnswer(req holdfast.AnswerApproval) (holdfast.ApprovalState, error) {
	if err := req.Check(); err != nil {
		return "", err
	}
	for _, rule := range req.Rules {
		if _, err := e.cfg.Policy.ParseRule(rule); err != nil {
			return "", err
		}
	}
	if req.Decision == "deny" {
		return holdfast.ApprovalDenied, nil
	}
	return holdfast.ApprovalAllowed, nil
}
