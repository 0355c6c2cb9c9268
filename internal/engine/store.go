package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/views"
)

// Stores are the read interfaces of the database that the engine and its parts use; writes go
// through the journal only. All are safe for concurrent use, must be set, and return not_found for
// unknown ids.
type Stores struct {
	Sessions Sessions
	Views    views.Store
	Search   views.Search
	// Approvals reads the questions to people, Rules the permission rules that their answers added.
	Approvals approvals.Store
	Rules     Rules
	Boots     boots.Sessions
	Facts     boots.Facts
}

// Sessions reads sessions and their turns from the database.
type Sessions interface {
	// Row returns one session.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Turn returns one turn of a session.
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	// OpenTurns lists the queued and running turns of one session, or of all sessions if id is empty,
	// ordered by session and number.
	OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error)
	// AgentStates returns a session's references to agents that keep their own state, ordered by
	// generation.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// KeyRef returns the session or turn id that an idempotency key was used for: "" for a new key,
	// conflict for a key that was used with another request.
	KeyRef(ctx context.Context, k journal.Key) (string, error)
	// Starting lists the sessions whose resume was cut off by a crash.
	Starting(ctx context.Context) ([]holdfast.SessionID, error)
}

// Rules reads permission rules.
type Rules interface {
	// Rules returns the permission rules stored under a key, as permit.Sources describes.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
}
