package engine

import (
	"cmp"
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/lifetime"
	"github.com/holdfast-run/holdfast/internal/obs"
	"github.com/holdfast-run/holdfast/internal/resume"
)

// next starts the first queued turn of an active session if none runs. A failed start is retried in the background until it
// succeeds or the server shuts down.
func (t *turns) next(ctx context.Context, u *unit) error {
	err := t.startNext(ctx, u)
	if err == nil {
		return nil
	}
	u.ask = true
	if u.retrying {
		return err
	}
	t.p.units.claim(u.id)
	u.retrying = t.p.life.Rest.Run(func() {
		defer t.p.units.disclaim(u)
		t.p.life.Insist(u.id, "a queued turn could not be started and is tried again", func() error {
			u.mu.Lock()
			defer u.mu.Unlock()
			err := t.startNext(t.p.life.Base, u)
			u.retrying = err != nil
			return err
		})
	})
	if !u.retrying {
		t.p.units.disclaim(u)
	}
	return err
}

func (t *turns) startNext(ctx context.Context, u *unit) error {
	defer u.starts.Store(false)
	if u.queued == 0 && !u.ask || t.p.life.Ends() || !t.free(u) {
		return nil
	}
	open, err := t.p.cfg.Stores.Sessions.OpenTurns(ctx, u.id)
	// A session that was deleted between retries has no open turns.
	if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		return err
	}
	if len(open) > 0 {
		row, err := t.p.row(ctx, u.id)
		if err != nil {
			return err
		}
		if row.Status != holdfast.StatusActive {
			// Start none: the call that makes the session active again sets u.ask, so that the queue is read again.
			open = nil
		}
	}
	if u.queued, u.ask = len(open), false; len(open) == 0 {
		u.requests = nil
		return nil
	}
	first := open[0]
	message, err := t.p.views.Message(ctx, u.id, first.MessageSeq)
	if err != nil {
		return err
	}
	next := turn{id: first.ID, number: first.Number, request: u.requests[first.ID]}
	done, err := t.p.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) error {
		next.messageSeq = row.LastSeq + 1
		c.Turns = []journal.TurnChange{{ID: next.id, From: holdfast.TurnQueued, To: holdfast.TurnRunning, MessageSeq: next.messageSeq}}
		c.Events = startEvents(next, message.Parts)
		return nil
	})
	if err != nil {
		return err
	}
	u.queued--
	delete(u.requests, next.id)
	next.startedAt = done.Events[0].Time
	t.launch(u, done.Row, next)
	return nil
}

// recover continues what the previous server process left open: sessions whose resume was cut off move to error, running
// turns continue, and queued turns start.
func (t *turns) recover(ctx context.Context) error {
	order, err := t.p.cfg.Stores.Sessions.Starting(ctx)
	if err != nil {
		return err
	}
	open, err := t.p.cfg.Stores.Sessions.OpenTurns(ctx, "")
	if err != nil {
		return err
	}
	bySession := map[holdfast.SessionID][]journal.TurnRow{}
	for _, id := range order {
		bySession[id] = []journal.TurnRow{}
	}
	for _, o := range open {
		if bySession[o.Session] == nil {
			order = append(order, o.Session)
		}
		bySession[o.Session] = append(bySession[o.Session], o)
	}
	for _, id := range order {
		if err := t.reopen(ctx, id, bySession[id]); holdfast.IsKind(err, holdfast.KindInternal) {
			// One damaged session must not keep the server from starting (I-37).
			t.p.cfg.Log.ErrorContext(ctx, "a session is damaged: its open turns do not continue", "session_id", id, "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// reopen continues a session after a restart. The caller does not hold the unit's lock.
func (t *turns) reopen(ctx context.Context, id holdfast.SessionID, open []journal.TurnRow) error {
	u := t.p.units.lock(id)
	defer t.p.units.unlock(u)
	row, err := t.p.row(ctx, id)
	if err == nil && row.Status == holdfast.StatusStarting {
		var done journal.Committed
		done, err = t.p.cfg.Journal.Commit(ctx, resume.Failed(id, resume.CutOff(id)))
		row = done.Row
	}
	if err != nil {
		return err
	}
	now := t.p.cfg.Clock()
	for _, o := range open {
		if o.Status == holdfast.TurnRunning {
			t.launch(u, row, turn{id: o.ID, number: o.Number, messageSeq: o.MessageSeq, startedAt: *cmp.Or(o.StartedAt, &now), again: true})
		} else {
			u.queued++
		}
	}
	// Ignore the error: next retries a failed start of a turn in the background.
	_ = t.next(ctx, u)
	return nil
}

// free reports whether a new message would start its turn at once. If so, it sets starts. The caller resets starts when it
// has started the turn, or gives it up.
func (t *turns) free(u *unit) bool {
	// Set starts before held looks for stages: a later rewind sees starts, and held sees an earlier rewind.
	u.starts.Store(u.running == nil && u.parked == 0)
	if u.starts.Load() && t.held(u) {
		u.starts.Store(false)
	}
	return u.starts.Load()
}

// first starts a turn with a message in a session that has no running or queued turn.
func (t *turns) first(ctx context.Context, u *unit, msg holdfast.SendMessage) (holdfast.Sent, error) {
	uuid, err := t.p.uuid()
	if err != nil {
		return holdfast.Sent{}, err
	}
	next := turn{id: holdfast.TurnID(uuid), request: obs.RequestIDOf(ctx)}
	done, err := t.p.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) error {
		next.number, next.messageSeq = row.LastTurn+1, row.LastSeq+1
		c.Key = turnKey(u.id, msg, next.id)
		c.Turns = []journal.TurnChange{{ID: next.id, To: holdfast.TurnRunning, Number: next.number, MessageSeq: next.messageSeq}}
		if title := choices.TitleOf(msg.Text); row.LastTurn == 0 && row.Title == "" && title != "" {
			c.Set = &journal.RowPatch{Title: &title}
		}
		c.Events = startEvents(next, msg.Parts)
		return nil
	})
	if err != nil {
		return holdfast.Sent{}, err
	}
	if done.Duplicate != "" {
		return t.duplicate(ctx, u.id, done.Duplicate)
	}
	at := done.Events[0].Time
	next.startedAt = at
	t.launch(u, done.Row, next)
	return holdfast.Sent{Seq: next.messageSeq - 1, Turn: holdfast.Turn{
		ID: next.id, Session: u.id, Status: holdfast.TurnRunning, Number: next.number, MessageSeq: next.messageSeq, Text: msg.Text,
		CreatedAt: at, StartedAt: &at,
	}}, nil
}

func startEvents(t turn, parts []holdfast.Part) []journal.Draft {
	return []journal.Draft{
		{Type: holdfast.EventMessageUser, Turn: t.id, Data: holdfast.UserMessage{Parts: parts}},
		{Type: holdfast.EventTurnStarted, Turn: t.id, Data: holdfast.TurnStartedData{Number: t.number, MessageSeq: t.messageSeq}},
	}
}

// enqueue queues a turn with a message, to start when no other turn runs.
func (t *turns) enqueue(ctx context.Context, u *unit, msg holdfast.SendMessage) (holdfast.Sent, error) {
	uuid, err := t.p.uuid()
	if err != nil {
		return holdfast.Sent{}, err
	}
	next := turn{id: holdfast.TurnID(uuid)}
	position := u.queued + 1
	done, err := t.p.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) error {
		next.number, next.messageSeq = row.LastTurn+1, row.LastSeq+1
		c.Key = turnKey(u.id, msg, next.id)
		c.Turns = []journal.TurnChange{{ID: next.id, To: holdfast.TurnQueued, Number: next.number, MessageSeq: next.messageSeq}}
		c.Events = []journal.Draft{{Type: holdfast.EventTurnQueued, Turn: next.id, Data: holdfast.TurnQueuedData{Number: next.number, Parts: msg.Parts, Position: position}}}
		return nil
	})
	if err != nil {
		return holdfast.Sent{}, err
	}
	if done.Duplicate != "" {
		return t.duplicate(ctx, u.id, done.Duplicate)
	}
	u.queued++
	u.arrived++
	if u.requests == nil {
		u.requests = map[holdfast.TurnID]string{}
	}
	u.requests[next.id] = obs.RequestIDOf(ctx)
	return holdfast.Sent{Seq: next.messageSeq - 1, Turn: holdfast.Turn{
		ID: next.id, Session: u.id, Status: holdfast.TurnQueued, Number: next.number, MessageSeq: next.messageSeq, Text: msg.Text,
		QueuePosition: position, CreatedAt: done.Events[0].Time,
	}}, nil
}

// steer adds a message to the running turn.
func (t *turns) steer(ctx context.Context, u *unit, msg holdfast.SendMessage) (holdfast.Sent, error) {
	r := u.running
	c := journal.NewChange(u.id)
	c.Key = turnKey(u.id, msg, r.id)
	c.Events = []journal.Draft{{Type: holdfast.EventMessageUser, Turn: r.id, Data: holdfast.UserMessage{Parts: msg.Parts, Steer: true}}}
	done, err := t.p.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if done.Duplicate != "" {
		return t.duplicate(ctx, u.id, done.Duplicate)
	}
	r.steerSeq = done.Events[0].Seq
	shown, err := t.p.views.Turn(ctx, u.id, r.id)
	return holdfast.Sent{Turn: shown, Seq: r.steerSeq - 1}, err
}

// before returns the turn of the first message with the same idempotency key, with Duplicate set. For a new key, and for a
// message without a key, the result is empty.
func (t *turns) before(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	k := turnKey(id, msg, "")
	if k == nil {
		return holdfast.Sent{}, nil
	}
	ref, err := t.p.cfg.Stores.Sessions.KeyRef(ctx, *k)
	if err != nil || ref == "" {
		return holdfast.Sent{}, err
	}
	return t.duplicate(ctx, id, ref)
}

func (t *turns) duplicate(ctx context.Context, id holdfast.SessionID, ref string) (holdfast.Sent, error) {
	shown, err := t.p.views.Turn(ctx, id, holdfast.TurnID(ref))
	return holdfast.Sent{Turn: shown, Seq: shown.MessageSeq - 1, Duplicate: true}, err
}

func turnKey(id holdfast.SessionID, msg holdfast.SendMessage, ref holdfast.TurnID) *journal.Key {
	if msg.Key == "" {
		return nil
	}
	return &journal.Key{Scope: "turn:" + string(id), Value: msg.Key, Hash: journal.HashOf(msg.Plain()), Ref: string(ref)}
}

// interrupt cancels a turn and waits for its end. The unit's lock is released while it waits.
func (t *turns) interrupt(ctx context.Context, u *unit, r *turnRun, op, reason string) error {
	r.cancel(&interrupted{reason: reason})
	u.mu.Unlock()
	defer u.mu.Lock()
	select {
	case <-r.done:
		if leftOpen(u, r) {
			return lifetime.LeftToNextStart(op)
		}
		return nil
	case <-ctx.Done():
		return holdfast.Errorf(holdfast.KindUnavailable, op, "stopped waiting for the running turn of session %s to end: %w", u.id, context.Cause(ctx)).
			WithHint("the turn continues; follow it: holdfast session events %s --follow", u.id)
	}
}

// leftOpen reports whether a finished turnRun has no terminal event because the server is shutting down. The unit then
// keeps it as running, so that the session does not look idle. The caller does not hold the unit's lock.
func leftOpen(u *unit, r *turnRun) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.running == r
}

// park stops turns from starting until done is called, which then starts the next queued turn if the session is still
// active. The caller holds the unit's lock at both calls.
func (t *turns) park(ctx context.Context, u *unit) (done func()) {
	u.parked++
	return func() {
		u.parked--
		// Ignore the error: next retries a failed start of a turn in the background.
		_ = t.next(ctx, u)
	}
}

// endRunning returns once no turn runs. If a turn runs, it is interrupted if interrupt is true; otherwise endRunning fails
// with conflict. The caller has parked the session. The unit's lock is released while endRunning waits.
func (t *turns) endRunning(ctx context.Context, u *unit, op string, interrupt bool, reason string) error {
	for u.running != nil {
		r := u.running
		if !interrupt {
			return holdfast.Errorf(holdfast.KindConflict, "session."+op, "a turn of session %s is running", u.id).
				WithHint("repeat the request with interrupt (--interrupt, or interrupt: true), or wait for the turn to end")
		}
		if err := t.interrupt(ctx, u, r, "session."+op, reason); err != nil {
			return err
		}
	}
	return nil
}
