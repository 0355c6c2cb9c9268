package engine

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/account"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// Send takes a message: it is durable when Send returns. With no turn running
// it starts one; otherwise it queues, steers or interrupts as asked. A paused
// or errored session is resumed first unless the message forbids it.
func (e *Engine) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	mode, err := holdfast.ParseSendMode(msg.Mode)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if msg, err = msg.Whole(); err == nil {
		err = validText("text", msg.Text)
	}
	if err != nil {
		return holdfast.Sent{}, err
	}
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.cfg.Store.Row(ctx, id)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if err := turnTrust(row, msg); err != nil {
		return holdfast.Sent{}, err
	}
	if err := e.screen(ctx, row, msg.Text); err != nil {
		return holdfast.Sent{}, err
	}
	refusal := e.draining()
	if refusal == nil && u.running == nil && u.parked == 0 {
		refusal = e.roomFor(row)
	}
	if refusal != nil || row.Status != holdfast.StatusActive {
		// A repeated message changes nothing, and its first answer stays true: it
		// neither resumes the session nor is it refused.
		if sent, err := e.sentBefore(ctx, id, msg); err != nil || sent.Duplicate {
			return sent, err
		}
	}
	if refusal == nil {
		refusal = imported(row.Session)
	}
	if refusal != nil {
		return holdfast.Sent{}, refusal
	}
	if err := e.wake(ctx, u, row, msg); err != nil {
		return holdfast.Sent{}, err
	}
	// Turns that were waiting when the session paused come first.
	if err := e.next(ctx, u); err != nil {
		return holdfast.Sent{}, err
	}
	if u.running == nil && u.parked == 0 {
		if sent, err := e.turnsLeft(ctx, row, msg); err != nil || sent.Duplicate {
			return sent, err
		}
		return e.sendFirst(ctx, u, msg)
	}
	if mode == holdfast.SendSteer && u.running != nil {
		return e.steer(ctx, u, msg)
	}
	if sent, err := e.turnsLeft(ctx, row, msg); err != nil || sent.Duplicate {
		return sent, err
	}
	sent, err := e.enqueue(ctx, u, msg)
	if err == nil && mode == holdfast.SendInterrupt && !sent.Duplicate && u.running != nil {
		u.running.cancel(&interrupted{reason: "a message interrupted the turn"})
	}
	return sent, err
}

// screen refuses a message that the session's runtime cannot carry out.
func (e *Engine) screen(ctx context.Context, row journal.Row, text string) error {
	s, ok := e.runtimes[row.Runtime].(runtime.Screener)
	if !ok {
		return nil
	}
	f, err := e.cfg.Agents.Folder(ctx, row.AgentVersion)
	if err != nil {
		return err
	}
	return s.Screen(text, f)
}

// roomFor refuses a message whose turn would start now and find all places for boxes
// taken. A turn that is taken before that waits for its place.
func (e *Engine) roomFor(row journal.Row) error {
	if row.Status == holdfast.StatusEnded {
		return nil
	}
	return e.boxes.Full(row)
}

// sentBefore is the answer to a message whose key has been used; not a duplicate
// when it is new.
func (e *Engine) sentBefore(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	k := e.turnKey(id, msg, "")
	if k == nil {
		return holdfast.Sent{}, nil
	}
	ref, err := e.cfg.Store.KeyRef(ctx, *k)
	if err != nil || ref == "" {
		return holdfast.Sent{}, err
	}
	return e.duplicate(ctx, id, ref)
}

// wake makes a session active for a message. The caller holds u.mu.
func (e *Engine) wake(ctx context.Context, u *unit, row journal.Row, msg holdfast.SendMessage) error {
	switch {
	case row.Status == holdfast.StatusActive:
		return nil
	case row.Status == holdfast.StatusEnded:
		return ended(u.id)
	case msg.Resume != nil && !*msg.Resume:
		return holdfast.Errorf(holdfast.KindConflict, "turn", "session %s is %s", u.id, holdfast.Quote(string(row.Status))).
			WithHint("holdfast session resume %s", u.id)
	}
	_, err := e.resume(ctx, u, row, holdfast.ResumeSession{})
	return err
}

// turnsLeft refuses a turn beyond the session's budget of turns, those that wait
// included, but not a message that was taken before. One that joins a running
// turn makes no turn.
func (e *Engine) turnsLeft(ctx context.Context, row journal.Row, msg holdfast.SendMessage) (holdfast.Sent, error) {
	b := row.Budget
	if b == nil || b.Turns == 0 || row.LastTurn < b.Turns {
		return holdfast.Sent{}, nil
	}
	if sent, err := e.sentBefore(ctx, row.ID, msg); err != nil || sent.Duplicate {
		return sent, err
	}
	return holdfast.Sent{}, account.Over(row.ID, "session", "turns", fmt.Sprintf("%d turns", row.LastTurn), fmt.Sprint(b.Turns))
}

func validText(what, s string) error {
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return holdfast.Errorf(holdfast.KindInvalid, what, "%s %s is not UTF-8 text without NUL", what, holdfast.Quote(s)).
			WithHint("leave the bytes out, or put them into a file: holdfast files put")
	}
	return nil
}

func (e *Engine) turnKey(id holdfast.SessionID, msg holdfast.SendMessage, ref holdfast.TurnID) *journal.Key {
	if msg.Key == "" {
		return nil
	}
	return &journal.Key{Scope: "turn:" + string(id), Value: msg.Key, Hash: hashOf(msg.Plain()), Ref: string(ref)}
}

// sendFirst starts a turn in a session where none runs nor waits.
func (e *Engine) sendFirst(ctx context.Context, u *unit, msg holdfast.SendMessage) (holdfast.Sent, error) {
	uuid, err := e.uuid()
	if err != nil {
		return holdfast.Sent{}, err
	}
	t := turn{id: holdfast.TurnID(uuid), request: holdfast.RequestIDOf(ctx)}
	done, err := e.commitAt(ctx, u.id, func(row journal.Row, c *journal.Change) {
		t.number, t.messageSeq = row.LastTurn+1, row.LastSeq+1
		c.Key = e.turnKey(u.id, msg, t.id)
		c.Turns = []journal.TurnChange{{ID: t.id, To: holdfast.TurnRunning, Number: t.number, MessageSeq: t.messageSeq}}
		if title := holdfast.TitleOf(msg.Text); row.LastTurn == 0 && row.Title == "" && title != "" {
			c.Set = &journal.RowPatch{Title: &title}
		}
		c.Events = startEvents(t, msg.Parts)
	})
	if err != nil {
		return holdfast.Sent{}, err
	}
	if done.Duplicate != "" {
		return e.duplicate(ctx, u.id, done.Duplicate)
	}
	at := done.Events[0].Time
	t.startedAt = at
	e.launch(u, done.Row, t)
	return holdfast.Sent{Seq: t.messageSeq - 1, Turn: holdfast.Turn{
		ID: t.id, Session: u.id, Status: holdfast.TurnRunning, Number: t.number, MessageSeq: t.messageSeq, Text: msg.Text,
		CreatedAt: at, StartedAt: &at,
	}}, nil
}

func startEvents(t turn, parts []holdfast.Part) []journal.Draft {
	return []journal.Draft{
		{Type: holdfast.EventMessageUser, Turn: t.id, Data: holdfast.UserMessage{Parts: parts}},
		{Type: holdfast.EventTurnStarted, Turn: t.id, Data: holdfast.TurnStartedData{Number: t.number, MessageSeq: t.messageSeq}},
	}
}

func (e *Engine) enqueue(ctx context.Context, u *unit, msg holdfast.SendMessage) (holdfast.Sent, error) {
	uuid, err := e.uuid()
	if err != nil {
		return holdfast.Sent{}, err
	}
	t := turn{id: holdfast.TurnID(uuid)}
	position := u.queued + 1
	done, err := e.commitAt(ctx, u.id, func(row journal.Row, c *journal.Change) {
		t.number, t.messageSeq = row.LastTurn+1, row.LastSeq+1
		c.Key = e.turnKey(u.id, msg, t.id)
		c.Turns = []journal.TurnChange{{ID: t.id, To: holdfast.TurnQueued, Number: t.number, MessageSeq: t.messageSeq}}
		c.Events = []journal.Draft{{Type: holdfast.EventTurnQueued, Turn: t.id, Data: holdfast.TurnQueuedData{Number: t.number, Parts: msg.Parts, Position: position}}}
	})
	if err != nil {
		return holdfast.Sent{}, err
	}
	if done.Duplicate != "" {
		return e.duplicate(ctx, u.id, done.Duplicate)
	}
	u.queued++
	u.arrived++
	if u.requests == nil {
		u.requests = map[holdfast.TurnID]string{}
	}
	u.requests[t.id] = holdfast.RequestIDOf(ctx)
	return holdfast.Sent{Seq: t.messageSeq - 1, Turn: holdfast.Turn{
		ID: t.id, Session: u.id, Status: holdfast.TurnQueued, Number: t.number, MessageSeq: t.messageSeq, Text: msg.Text,
		QueuePosition: position, CreatedAt: done.Events[0].Time,
	}}, nil
}

// steer adds a message to the running turn.
func (e *Engine) steer(ctx context.Context, u *unit, msg holdfast.SendMessage) (holdfast.Sent, error) {
	r := u.running
	c := journal.NewChange(u.id)
	c.Key = e.turnKey(u.id, msg, r.id)
	c.Events = []journal.Draft{{Type: holdfast.EventMessageUser, Turn: r.id, Data: holdfast.UserMessage{Parts: msg.Parts, Steer: true}}}
	done, err := e.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if done.Duplicate != "" {
		return e.duplicate(ctx, u.id, done.Duplicate)
	}
	r.steerSeq = done.Events[0].Seq
	t, err := e.Turn(ctx, u.id, r.id)
	return holdfast.Sent{Turn: t, Seq: r.steerSeq - 1}, err
}

func (e *Engine) duplicate(ctx context.Context, id holdfast.SessionID, ref string) (holdfast.Sent, error) {
	t, err := e.Turn(ctx, id, holdfast.TurnID(ref))
	return holdfast.Sent{Turn: t, Seq: t.MessageSeq - 1, Duplicate: true}, err
}

// commitAt commits a change that depends on where the log ends: build sees the
// row, and is called again when another writer got in between.
func (e *Engine) commitAt(ctx context.Context, id holdfast.SessionID, build func(journal.Row, *journal.Change)) (journal.Committed, error) {
	for attempt := 0; ; attempt++ {
		row, err := e.cfg.Store.Row(ctx, id)
		if err != nil {
			return journal.Committed{}, err
		}
		c := journal.NewChange(id)
		c.LastSeq = row.LastSeq
		build(row, &c)
		done, err := e.cfg.Journal.Commit(ctx, c)
		if !holdfast.IsKind(err, holdfast.KindConflict) || attempt == 20 {
			return done, err
		}
		if now, rerr := e.cfg.Store.Row(ctx, id); rerr == nil && now.LastSeq == row.LastSeq {
			return done, err
		}
	}
}

// next starts the first waiting turn of an active session where none runs. When
// that fails it is tried again until it is done, whether or not anybody comes
// back to the session. The caller holds u.mu.
func (e *Engine) next(ctx context.Context, u *unit) error {
	err := e.startNext(ctx, u)
	if err == nil {
		return nil
	}
	u.ask = true
	if u.retrying {
		return err
	}
	e.claim(u.id)
	u.retrying = e.crews.rest.run(func() {
		defer e.disclaim(u)
		e.insist(u.id, "waiting turn not started", func() error {
			u.mu.Lock()
			defer u.mu.Unlock()
			err := e.startNext(e.base, u)
			u.retrying = err != nil
			return err
		})
	})
	if !u.retrying {
		e.disclaim(u)
	}
	return err
}

func (e *Engine) startNext(ctx context.Context, u *unit) error {
	if u.running != nil || u.parked > 0 || u.queued == 0 && !u.ask || e.draining() != nil {
		return nil
	}
	open, err := e.cfg.Store.OpenTurns(ctx, u.id)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		// Deleted while this was tried again.
		open, err = nil, nil
	}
	if err != nil {
		return err
	}
	if len(open) > 0 {
		row, err := e.cfg.Store.Row(ctx, u.id)
		if err != nil {
			return err
		}
		if row.Status != holdfast.StatusActive {
			// Whoever makes the session active again asks anew.
			open = nil
		}
	}
	if u.queued, u.ask = len(open), false; len(open) == 0 {
		u.requests = nil
		return nil
	}
	next := open[0]
	message, err := e.messageAt(ctx, u.id, next.MessageSeq)
	if err != nil {
		return err
	}
	t := turn{id: next.ID, number: next.Number, request: u.requests[next.ID]}
	done, err := e.commitAt(ctx, u.id, func(row journal.Row, c *journal.Change) {
		t.messageSeq = row.LastSeq + 1
		c.Turns = []journal.TurnChange{{ID: t.id, From: holdfast.TurnQueued, To: holdfast.TurnRunning, MessageSeq: t.messageSeq}}
		c.Events = startEvents(t, message.Parts)
	})
	if err != nil {
		return err
	}
	u.queued--
	delete(u.requests, t.id)
	t.startedAt = done.Events[0].Time
	e.launch(u, done.Row, t)
	return nil
}
