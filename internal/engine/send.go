package engine

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/account"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// Send accepts a message, which is durable when Send returns. If no turn runs it starts one;
// otherwise the message is queued, joins the running turn or interrupts it, as its mode says. A
// paused or failed session is resumed first unless the message forbids it.
func (e *Engine) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (sent holdfast.Sent, err error) {
	mode, err := holdfast.Parse[holdfast.SendMode](msg.Mode)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if msg, err = msg.Whole(); err == nil {
		err = journal.CheckText("text", msg.Text)
	}
	if err != nil {
		return holdfast.Sent{}, err
	}
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	defer u.starts.Store(false)
	defer func() {
		// A repeated message interrupts as well: the server may have been killed before it cancelled the running turn. Turns
		// that began after the message was queued continue.
		if r := u.running; err == nil && mode == holdfast.SendInterrupt && r != nil && r.messageSeq < sent.Turn.MessageSeq {
			r.cancel(&interrupted{reason: "a message interrupted the turn"})
		}
	}()
	e.turns.rested(ctx, u)
	row, err := e.p.row(ctx, id)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if err := choices.TurnTrust(row, msg); err != nil {
		return holdfast.Sent{}, err
	}
	if err := e.screen(ctx, row, msg.Text); err != nil {
		return holdfast.Sent{}, err
	}
	refusal := e.p.life.Draining()
	if refusal == nil && row.Status != holdfast.StatusEnded {
		refusal = e.p.cfg.Turns.Accepts(id)
	}
	if refusal == nil && e.turns.free(u) && row.Status != holdfast.StatusEnded {
		// Only a new message is refused for lack of a free box; a turn that was accepted earlier waits for one.
		refusal = e.p.boxes.Full(row)
	}
	if refusal != nil || row.Status != holdfast.StatusActive {
		// A repeated message gets its first answer again: it neither resumes the session nor is refused.
		if sent, err := e.turns.before(ctx, id, msg); err != nil || sent.Duplicate {
			return sent, err
		}
	}
	if refusal == nil {
		refusal = choices.Imported(row.Session)
	}
	if refusal != nil {
		return holdfast.Sent{}, refusal
	}
	if err := e.wake(ctx, u, row, msg); err != nil {
		return holdfast.Sent{}, err
	}
	// Turns that were queued when the session was paused come first.
	if err := e.turns.next(ctx, u); err != nil {
		return holdfast.Sent{}, err
	}
	if e.turns.free(u) {
		if sent, err := e.turnsLeft(ctx, row, msg); err != nil || sent.Duplicate {
			return sent, err
		}
		return e.turns.first(ctx, u, msg)
	}
	if mode == holdfast.SendSteer && u.running != nil {
		return e.turns.steer(ctx, u, msg)
	}
	if sent, err := e.turnsLeft(ctx, row, msg); err != nil || sent.Duplicate {
		return sent, err
	}
	return e.turns.enqueue(ctx, u, msg)
}

// screen refuses a message that the session's runtime cannot carry out.
func (e *Engine) screen(ctx context.Context, row journal.Row, text string) error {
	s, ok := e.p.runtimes[row.Runtime].(runtime.Screener)
	if !ok {
		return nil
	}
	f, err := e.p.cfg.Agents.Folder(ctx, row.AgentVersion)
	if err != nil {
		return err
	}
	return s.Screen(text, f)
}

// wake makes a session active for a message, or returns why it cannot. The caller holds u.mu.
func (e *Engine) wake(ctx context.Context, u *unit, row journal.Row, msg holdfast.SendMessage) error {
	switch {
	case row.Status == holdfast.StatusActive:
		return nil
	case row.Status == holdfast.StatusEnded:
		return ended(u.id)
	case msg.Resume != nil && !*msg.Resume:
		return holdfast.Errorf(holdfast.KindConflict, "turn", "session %s is %s, and the message may not resume it", u.id, holdfast.Quote(string(row.Status))).
			WithHint("holdfast session resume %s", u.id)
	}
	_, err := e.p.resume(ctx, u, row, holdfast.ResumeSession{})
	return err
}

// turnsLeft refuses a message whose turn would exceed the session's limit on turns; queued turns count. A message that was
// accepted before gets its first answer again. A steering message needs no check: it creates no turn.
func (e *Engine) turnsLeft(ctx context.Context, row journal.Row, msg holdfast.SendMessage) (holdfast.Sent, error) {
	b := row.Budget
	if b == nil || b.Turns == 0 || row.LastTurn < b.Turns {
		return holdfast.Sent{}, nil
	}
	if sent, err := e.turns.before(ctx, row.ID, msg); err != nil || sent.Duplicate {
		return sent, err
	}
	return holdfast.Sent{}, account.Over(row.ID, "session", "turns", fmt.Sprintf("%d turns", row.LastTurn), fmt.Sprint(b.Turns))
}

// Interrupt ends the running turn and waits for its terminal event.
func (e *Engine) Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	u := e.p.units.lock(id)
	defer e.p.units.unlock(u)
	row, err := e.p.liveRow(ctx, id)
	if err != nil {
		return holdfast.Session{}, err
	}
	r := u.running
	if r == nil {
		return row.Session, holdfast.Errorf(holdfast.KindConflict, "interrupt", "no turn of session %s is running", id).
			WithHint("holdfast session show %s", id)
	}
	if err := e.turns.interrupt(ctx, u, r, "interrupt", "interrupted"); err != nil {
		return row.Session, err
	}
	return e.p.views.Session(ctx, id)
}

// Explain returns how a tool call of a session would be decided, and why. It runs nothing.
func (e *Engine) Explain(ctx context.Context, id holdfast.SessionID, req holdfast.ExplainPolicy) (holdfast.PolicyExplanation, error) {
	row, err := e.p.row(ctx, id)
	if err != nil {
		return holdfast.PolicyExplanation{}, err
	}
	return e.p.policies.Explain(ctx, row, req, e.p.links(ctx, row, nil))
}
