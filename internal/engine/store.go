package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/views"
)

// Stores are the interfaces through which the engine and its parts read the database. Except for Facts, the database is
// written through the journal only. All fields must be set, and their values must be safe for concurrent use.
type Stores struct {
	Sessions Sessions
	Views    views.Store
	Search   views.Search
	// Approvals reads the questions to people; Rules reads the permission rules that answers, hooks and policies added,
	// and those in the settings of workspaces.
	Approvals approvals.Store
	Rules     Rules
	Boots     boots.Sessions
	Facts     boots.Facts
}

// Sessions reads sessions and their turns from the database. A session that does not exist is not_found.
type Sessions interface {
	// Row returns one session.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Turn returns one turn of a session.
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	// OpenTurns lists the queued and running turns of one session, or of all sessions if id is empty,
	// ordered by session and number.
	OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error)
	// AgentStates returns a session's references to agents that keep their own state, ordered by generation.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// KeyRef returns the session or turn id that an idempotency key was used for: "" for a new key,
	// conflict for a key that was used with another request.
	KeyRef(ctx context.Context, k journal.Key) (string, error)
	// Starting lists the sessions with the status starting: at the server's start, those whose resume a crash cut off.
	Starting(ctx context.Context) ([]holdfast.SessionID, error)
}

// Rules reads permission rules.
type Rules interface {
	// Rules returns the permission rules stored under a key, as permit.Sources describes.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
	// Changes returns a number that grows whenever the rules of any key may have changed.
	Changes() int64
}
