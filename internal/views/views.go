// Package views reads sessions, turns, events and usage from the store and the journal, in the form
// in which the API shows them.
//
// The engine makes the one Views of a server and uses it; the app gives it to the API. The package
// imports the journal; it changes nothing and takes no session's lock. Invariant: everything it returns is durable, except deltas and the running
// turn's usage and waits, which come from Live.
package views

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Store is the part of the database that views read. Unknown ids are not_found, except for AgentStates, which then
// returns none.
type Store interface {
	// Row returns one session, Rows a page of sessions.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	Rows(ctx context.Context, q journal.Query) (journal.Page, error)
	// Turn returns one turn of a session. Turns lists the turns after a number, in order; limit 0
	// means 100. OpenTurns lists the queued and running turns in order.
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]journal.TurnRow, error)
	OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error)
	// AgentStates returns a session's references to agents that keep their own state, ordered by
	// generation.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// Events and Head are as in journal.Store.
	Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error)
	Head(ctx context.Context, id holdfast.SessionID) (int64, error)
}

// Search is the full-text index of the store.
type Search interface {
	// Search finds entries and titles. Everything committed before is found, unless the store is so
	// busy that the page counts it as pending.
	Search(ctx context.Context, q journal.Search) (holdfast.SearchPage, error)
}

// Live is the state of a running turn that is not in the database.
type Live struct {
	Turn holdfast.TurnID
	// Spent is the turn's usage so far, Reserved the most that its current calls may use.
	Spent    holdfast.Spent
	Reserved holdfast.Usage
	// ParkedUntil is when the model provider accepts calls again; nil unless the turn waits for that.
	ParkedUntil *time.Time
	// Questions is the number of approval questions that the turn waits for.
	Questions int
}

// Views reads the data that the API shows. Safe for concurrent use.
type Views struct {
	store   Store
	search  Search
	journal *journal.Journal
	live    func(holdfast.SessionID) (Live, bool)
}

// New returns Views. live returns the state of a session's running turn, or false if none runs.
func New(store Store, search Search, j *journal.Journal, live func(holdfast.SessionID) (Live, bool)) *Views {
	return &Views{store: store, search: search, journal: j, live: live}
}

// Session returns one session.
func (v *Views) Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	row, err := v.store.Row(ctx, id)
	return v.shown(row.Session), err
}

// List returns a page of sessions, newest first.
func (v *Views) List(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error) {
	q := journal.Query{Tag: f.Tag, Workspace: f.Workspace, Text: f.Text, Words: f.Query, Trash: f.Trash, Cursor: f.Cursor, Limit: f.Limit}
	var err error
	if f.Status != "" {
		if q.Status, err = holdfast.Parse[holdfast.Status](f.Status); err != nil {
			return holdfast.SessionPage{}, err
		}
	}
	if f.Agent != "" {
		if q.Agent, err = holdfast.Parse[holdfast.AgentName](f.Agent); err != nil {
			return holdfast.SessionPage{}, err
		}
	}
	if f.Limit < 0 || f.Limit > 500 {
		return holdfast.SessionPage{}, holdfast.Errorf(holdfast.KindInvalid, "session.list", "the limit %d of a page of sessions is not within 0-500, where 0 means the default", f.Limit)
	}
	page, err := v.named(ctx, q, f.Name)
	if err != nil {
		return holdfast.SessionPage{}, err
	}
	out := holdfast.SessionPage{Sessions: make([]holdfast.Session, len(page.Rows)), Next: page.Next}
	for i, r := range page.Rows {
		out.Sessions[i] = v.shown(r.Session)
	}
	return out, nil
}

// named runs the query q for sessions, limited to those that a name matches as
// holdfast.SessionFilter describes. An empty name matches all.
func (v *Views) named(ctx context.Context, q journal.Query, name string) (journal.Page, error) {
	if name == "" {
		return v.store.Rows(ctx, q)
	}
	if q.Cursor != "" {
		return journal.Page{}, holdfast.Errorf(holdfast.KindInvalid, "session.list", "a name to look up sessions by cannot be combined with a cursor").
			WithHint("leave out the cursor and take a larger limit: a name selects few sessions")
	}
	if err := journal.CheckText("name", name); err != nil {
		return journal.Page{}, err
	}
	byPart, byTitle, byBeginning := q, q, q
	byPart.IDPart, byTitle.Title, byBeginning.TitlePrefix = name, name, name
	var first journal.Page
	for _, q := range []journal.Query{byPart, byTitle, byBeginning} {
		p, err := v.store.Rows(ctx, q)
		if err != nil || len(p.Rows) == 1 && p.Next == "" {
			return p, err
		}
		if len(first.Rows) == 0 {
			first = p
		}
	}
	first.Next = "" // a search by name gives one page, without a cursor
	return first, nil
}

// Turn returns one turn of a session.
func (v *Views) Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error) {
	row, err := v.store.Turn(ctx, id, turn)
	if err != nil {
		return holdfast.Turn{}, err
	}
	return v.wireTurn(ctx, row)
}

// AgentStates returns the session's references to agents that keep their own conversation, ordered
// by generation, without the runtime's private data.
func (v *Views) AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	if _, err := v.store.Row(ctx, id); err != nil {
		return nil, err
	}
	states, err := v.store.AgentStates(ctx, id)
	for i := range states {
		states[i].Data = nil
	}
	return states, err
}

// Turns lists turns after a number, oldest first.
func (v *Views) Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error) {
	if limit < 0 || limit > 500 || after < 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "turns", "the list of turns after number %d with limit %d is invalid: after must be at least 0 and limit 0-500", after, limit)
	}
	if _, err := v.store.Row(ctx, id); err != nil {
		return nil, err
	}
	rows, err := v.store.Turns(ctx, id, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]holdfast.Turn, 0, len(rows))
	for _, r := range rows {
		t, err := v.wireTurn(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// wireTurn returns a turn's row as the API shows it, with its texts, which are in the log.
func (v *Views) wireTurn(ctx context.Context, row journal.TurnRow) (holdfast.Turn, error) {
	t := holdfast.Turn{
		ID: row.ID, Session: row.Session, Status: row.Status, Number: row.Number, MessageSeq: row.MessageSeq,
		CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
	}
	message, err := v.Message(ctx, row.Session, row.MessageSeq)
	if err != nil {
		return t, err
	}
	t.Text = message.Text()
	if row.Status == holdfast.TurnQueued {
		open, err := v.store.OpenTurns(ctx, row.Session)
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
	ev, err := v.eventAt(ctx, row.Session, row.EndSeq)
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

func (v *Views) eventAt(ctx context.Context, id holdfast.SessionID, seq int64) (holdfast.Event, error) {
	evs, err := v.store.Events(ctx, id, seq-1, 1)
	if err != nil {
		return holdfast.Event{}, err
	}
	if len(evs) != 1 || evs[0].Seq != seq {
		return holdfast.Event{}, holdfast.Errorf(holdfast.KindInternal, "events", "the log of session %s has no event #%d", id, seq)
	}
	return evs[0], evs[0].Whole()
}

// Message returns the user's message of the message.user or turn.queued event with a number.
func (v *Views) Message(ctx context.Context, id holdfast.SessionID, seq int64) (m holdfast.UserMessage, err error) {
	ev, err := v.eventAt(ctx, id, seq)
	if err == nil {
		err = ev.Decode(&m)
	}
	return m, err
}

// Events returns a page of the log; the next page begins after the number of its last event. With a
// type filter the page is filled with the next events of these types, so that only the last page is
// short.
func (v *Views) Events(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) ([]holdfast.Event, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 1 || f.Limit > 1000 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "events", "the limit %d of a page of events is not within 1-1000", f.Limit)
	}
	head, err := v.store.Head(ctx, id)
	if err != nil {
		return nil, err
	}
	if f.After < 0 || f.After > head {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "events", "after: event number %d is not within 0-%d, the numbers of the session's log", f.After, head).
			WithHint("the newest event of session %s has the number %d", id, head)
	}
	out := []holdfast.Event{}
	for ev, err := range v.journal.Replay(ctx, id, f.After) {
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

// Search finds messages and titles of sessions.
func (v *Views) Search(ctx context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error) {
	q := journal.Search{Text: req.Query, Cursor: req.Cursor, Limit: req.Limit}
	if req.Limit < 0 || req.Limit > 200 {
		return holdfast.SearchPage{}, holdfast.Errorf(holdfast.KindInvalid, "search", "the limit %d of a search is not within 0-200, where 0 means the default", req.Limit)
	}
	if req.Session != "" {
		var err error
		if q.Session, err = holdfast.Parse[holdfast.SessionID](req.Session); err != nil {
			return holdfast.SearchPage{}, err
		}
	}
	return v.search.Search(ctx, q)
}

// Follow opens a live reader of a session's log.
func (v *Views) Follow(ctx context.Context, id holdfast.SessionID, after int64) (*journal.Reader, error) {
	return v.journal.Follow(ctx, id, after)
}

// Usage returns the total usage of a session, including its running turn.
func (v *Views) Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error) {
	row, err := v.store.Row(ctx, id)
	if err != nil {
		return holdfast.SessionUsage{}, err
	}
	live, running := v.live(id)
	if running {
		// A turn's usage is added to the row by the commit that ends the turn. The row was read first:
		// if the turn still runs now, the row does not include it.
		t, err := v.store.Turn(ctx, id, live.Turn)
		if err != nil {
			return holdfast.SessionUsage{}, err
		}
		if running = t.Status == holdfast.TurnRunning; !running {
			if row, err = v.store.Row(ctx, id); err != nil {
				return holdfast.SessionUsage{}, err
			}
		}
	}
	all := row.Spent
	out := holdfast.SessionUsage{
		Usage: all.Usage, Turns: all.Turns, Calls: all.Calls, DurationMS: all.DurationMS,
		Budget: row.Budget, TurnBudget: row.TurnBudget,
	}
	if running {
		out.Running, out.Reserved, all = &live.Spent, &live.Reserved, all.Add(live.Spent)
	}
	if all.UnpricedCalls == 0 {
		usd := float64(all.CostMicroUSD) / 1e6
		out.CostUSD = &usd
	}
	return out, nil
}

// shown returns a session with the state of its running turn, if one runs.
func (v *Views) shown(s holdfast.Session) holdfast.Session {
	if l, ok := v.live(s.ID); ok {
		s.ParkedUntil, s.PendingApprovals = l.ParkedUntil, l.Questions
	}
	return s
}
