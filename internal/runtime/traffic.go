package runtime

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Traffic is a running turn as the way out of its box sees it: who asks, what it may
// still use up, and where it is written down. Safe for concurrent use.
type Traffic interface {
	// Session is the session as it was when the turn began.
	Session() holdfast.Session
	// Bounded and Reserve are those of the turn's Meter.
	Bounded() bool
	Reserve(most holdfast.Usage) (settle func(used holdfast.Usage, answered bool), err error)
	// Record appends events of the turn. It fails once the turn has ended.
	Record(ctx context.Context, drafts ...journal.Draft) ([]holdfast.Event, error)
	// Done is closed when the turn ends or is interrupted: nothing may be spent then.
	Done() <-chan struct{}
}

// Limit is what a provider last answered to a box when it would not take a request:
// a rate limit or an overload. A runtime whose agent failed because of it parks the
// turn until Until, where that is not the zero time, and tries again.
type Limit struct {
	// Status is the HTTP status: 429 or 529. Class is rate_limit or overloaded.
	Status  int
	Class   string
	Message string
	// At is when it was answered; RetryAfter what the provider asked to wait, 0 if it
	// said nothing.
	At         time.Time
	RetryAfter time.Duration
}

// Until is when the provider takes requests again; zero when it did not say.
func (l Limit) Until() time.Time {
	if l.RetryAfter <= 0 {
		return time.Time{}
	}
	return l.At.Add(l.RetryAfter)
}

// Limits remembers what providers answered to boxes. The broker keeps it; runtimes
// in boxes ask. The next request of the session that is answered clears it.
type Limits interface {
	LastLimit(id holdfast.SessionID) (Limit, bool)
}
