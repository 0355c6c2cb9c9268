package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/views"
)

// Stores are what the engine and its parts read from the database; they write through the journal
// only. All are safe for concurrent use; unknown ids are not_found. All must be set.
type Stores struct {
	Sessions Sessions
	Views    views.Store
	Search   views.Search
	// Approvals are the questions to persons, Rules the permission rules that their answers left.
	Approvals approvals.Store
	Rules     Rules
	Boots     boots.Sessions
	Facts     boots.Facts
}

// Sessions is what the engine reads of sessions and their turns.
type Sessions interface {
	// Row is one session.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Turn is one turn of a session.
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	// OpenTurns lists the queued and running turns, of one session or (empty id)
	// of all, by session and number.
	OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error)
	// AgentStates are a session's references to agents that keep a state of their
	// own, by generation.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// KeyRef is what an idempotency key stands for: empty for a new one, conflict
	// for one that was used for another request.
	KeyRef(ctx context.Context, k journal.Key) (string, error)
	// Starting lists the sessions whose resume was cut off by a crash.
	Starting(ctx context.Context) ([]holdfast.SessionID, error)
	// DeleteSession removes an ended session and its log.
	DeleteSession(ctx context.Context, id holdfast.SessionID) error
}

// Rules reads permission rules.
type Rules interface {
	// Rules is as in permit.Sources.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
}
