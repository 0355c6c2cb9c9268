package engine

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Store is what the engine reads from the database; it writes through the
// journal only. Safe for concurrent use. Unknown ids are not_found.
type Store interface {
	// Row is one session.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Rows is a page of sessions.
	Rows(ctx context.Context, q journal.Query) (journal.Page, error)
	boots.Facts
	TurnRows
	Log
	Approvals
	// KeyRef is what an idempotency key stands for: empty for a new one, conflict
	// for one that was used for another request.
	KeyRef(ctx context.Context, k journal.Key) (string, error)
	// Starting lists the sessions whose resume was cut off by a crash.
	Starting(ctx context.Context) ([]holdfast.SessionID, error)
	// Epoch is the fencing token of this server: higher than any before.
	Epoch() uint64
	// DeleteSession removes an ended session and its log.
	DeleteSession(ctx context.Context, id holdfast.SessionID) error
}

// TurnRows is what the engine reads of turns.
type TurnRows interface {
	// Turn is one turn of a session.
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	// Turns lists turns by number, those after a number first; limit 0 is 100.
	Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]journal.TurnRow, error)
	// OpenTurns lists the queued and running turns, of one session or (empty id)
	// of all, by session and number.
	OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error)
}

// Approvals is what the engine reads of questions to persons and of the rules
// that their answers left.
type Approvals interface {
	// Approval is one question.
	Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error)
	// Approvals is a page of questions, the longest asked first.
	Approvals(ctx context.Context, q journal.ApprovalQuery) (journal.ApprovalPage, error)
	// NextExpiry is when the first pending question expires; the zero time is never.
	NextExpiry(ctx context.Context) (time.Time, error)
	// Rules is as in permit.Sources.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
}

// Log is what the engine reads of sessions' logs.
type Log interface {
	// Events and Head are those of journal.Store.
	Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error)
	Head(ctx context.Context, id holdfast.SessionID) (int64, error)
	// NewestEvent returns the time of the newest event of all sessions, the zero time if
	// there is none. ActiveSince returns the sessions whose newest event is at or after a
	// time.
	NewestEvent(ctx context.Context) (time.Time, error)
	ActiveSince(ctx context.Context, since time.Time) ([]holdfast.SessionID, error)
	// AgentStates are a session's references to agents that keep a state of their
	// own, by generation.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// Search finds entries and titles. What was committed before is found, unless
	// the store is so busy that the page counts it as pending.
	Search(ctx context.Context, q journal.Search) (holdfast.SearchPage, error)
}
