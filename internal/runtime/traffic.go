package runtime

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Traffic is what the model broker, through which a box reaches its model, knows of the running turn: its
// session, its remaining budgets, and how to record events. Safe for concurrent use.
type Traffic interface {
	// Session returns the session as it was when the turn began.
	Session() holdfast.Session
	// Bounded and Reserve do what the methods of model.Meter with the same names do, for the turn.
	Bounded() bool
	Reserve(most holdfast.Usage) (settle func(used holdfast.Usage, answered bool), err error)
	// Record appends events of the turn. It fails once the turn has ended.
	Record(ctx context.Context, drafts ...journal.Draft) ([]holdfast.Event, error)
	// Done returns a channel that is closed when the turn ends or is interrupted: from then on no
	// budget may be used.
	Done() <-chan struct{}
}

// Limit is the newest answer by which a provider refused a box's request because of a rate limit or overload.
// If an agent failed because of that answer, its runtime may park the turn until the time that Until returns,
// and then try again.
type Limit struct {
	// Status is the HTTP status, 429 or 529; Class is the class of the failure, such as rate_limit or overloaded.
	Status  int
	Class   string
	Message string
	// At is the time of the answer; RetryAfter is how long the provider asked to wait, 0 if it did
	// not say.
	At         time.Time
	RetryAfter time.Duration
}

// Until returns when the provider accepts requests again, or zero if it did not say.
func (l Limit) Until() time.Time {
	if l.RetryAfter <= 0 {
		return time.Time{}
	}
	return l.At.Add(l.RetryAfter)
}

// Limits stores the newest Limit of each session. The broker implements it; the runtime claude reads
// it. The next successful answer of the provider for a session clears the session's Limit.
type Limits interface {
	LastLimit(id holdfast.SessionID) (Limit, bool)
}
