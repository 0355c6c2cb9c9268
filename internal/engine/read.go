package engine

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Turn is one turn of a session.
func (e *Engine) Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error) {
	row, err := e.cfg.Store.Turn(ctx, id, turn)
	if err != nil {
		return holdfast.Turn{}, err
	}
	return e.wireTurn(ctx, row)
}

// AgentStates are the session's references to agents that keep a conversation of
// their own, by generation, without what belongs to the runtime alone.
func (e *Engine) AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	if _, err := e.cfg.Store.Row(ctx, id); err != nil {
		return nil, err
	}
	states, err := e.cfg.Store.AgentStates(ctx, id)
	for i := range states {
		states[i].Data = nil
	}
	return states, err
}

// Turns lists turns after a number, oldest first.
func (e *Engine) Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error) {
	if limit < 0 || limit > 500 || after < 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "turns", "after %d, limit %d: not within 0-, 1-500", after, limit)
	}
	if _, err := e.cfg.Store.Row(ctx, id); err != nil {
		return nil, err
	}
	rows, err := e.cfg.Store.Turns(ctx, id, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]holdfast.Turn, 0, len(rows))
	for _, r := range rows {
		t, err := e.wireTurn(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// wireTurn joins a turn's row with its texts, which stand in the log.
func (e *Engine) wireTurn(ctx context.Context, row journal.TurnRow) (holdfast.Turn, error) {
	t := holdfast.Turn{
		ID: row.ID, Session: row.Session, Status: row.Status, Number: row.Number, MessageSeq: row.MessageSeq,
		CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
	}
	message, err := e.messageAt(ctx, row.Session, row.MessageSeq)
	if err != nil {
		return t, err
	}
	t.Text = message.Text()
	if row.Status == holdfast.TurnQueued {
		open, err := e.cfg.Store.OpenTurns(ctx, row.Session)
		if err != nil {
			return t, err
		}
		for _, o := range open {
			if o.Status == holdfast.TurnQueued && o.Number <= row.Number {
				t.QueuePosition++
			}
		}
	}
	if row.EndSeq == 0 {
		return t, nil
	}
	ev, err := e.eventAt(ctx, row.Session, row.EndSeq)
	if err != nil {
		return t, err
	}
	var end holdfast.TurnEnded
	if err := ev.Decode(&end); err != nil {
		return t, err
	}
	t.Result, t.StopReason, t.Error, t.Usage, t.Denials = end.Result, end.StopReason, end.Message, &end.Usage, end.Denials
	return t, nil
}

func (e *Engine) eventAt(ctx context.Context, id holdfast.SessionID, seq int64) (holdfast.Event, error) {
	evs, err := e.cfg.Store.Events(ctx, id, seq-1, 1)
	if err != nil {
		return holdfast.Event{}, err
	}
	if len(evs) != 1 || evs[0].Seq != seq {
		return holdfast.Event{}, holdfast.Errorf(holdfast.KindInternal, "events", "session %s has no event %d", id, seq)
	}
	return evs[0], evs[0].Whole()
}

// messageAt returns the user's message of a message.user or turn.queued event.
func (e *Engine) messageAt(ctx context.Context, id holdfast.SessionID, seq int64) (m holdfast.UserMessage, err error) {
	ev, err := e.eventAt(ctx, id, seq)
	if err == nil {
		err = ev.Decode(&m)
	}
	return m, err
}

// Events reads a page of the log; the last event's seq is where to go on. With a
// type filter the page holds the next events of these types, so that only a page
// at the end of the log is short.
func (e *Engine) Events(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) ([]holdfast.Event, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 1 || f.Limit > 1000 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "events", "limit %d is not within 1-1000", f.Limit)
	}
	head, err := e.cfg.Store.Head(ctx, id)
	if err != nil {
		return nil, err
	}
	if f.After < 0 || f.After > head {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "events", "after %d is not within 0-%d", f.After, head).
			WithHint("the newest event of session %s is %d", id, head)
	}
	out := []holdfast.Event{}
	for ev, err := range e.cfg.Journal.Replay(ctx, id, f.After) {
		if err != nil {
			return nil, err
		}
		if len(f.Types) > 0 && !slices.Contains(f.Types, ev.Type) {
			continue
		}
		if out = append(out, ev); len(out) == f.Limit {
			break
		}
	}
	return out, nil
}

// Search finds what was said in sessions, and their titles.
func (e *Engine) Search(ctx context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error) {
	q := journal.Search{Text: req.Query, Cursor: req.Cursor, Limit: req.Limit}
	if req.Limit < 0 || req.Limit > 200 {
		return holdfast.SearchPage{}, holdfast.Errorf(holdfast.KindInvalid, "search", "limit %d is not within 1-200", req.Limit)
	}
	if req.Session != "" {
		var err error
		if q.Session, err = holdfast.ParseSessionID(req.Session); err != nil {
			return holdfast.SearchPage{}, err
		}
	}
	return e.cfg.Store.Search(ctx, q)
}

// Follow opens a live reader of a session's log.
func (e *Engine) Follow(ctx context.Context, id holdfast.SessionID, after int64) (*journal.Reader, error) {
	return e.cfg.Journal.Follow(ctx, id, after)
}
