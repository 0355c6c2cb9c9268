package journal

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

// Token is the fencing token of a lease. A lease that is taken later has a higher token; no token is
// used twice.
type Token uint64

// Leases gives this server the right to change the sessions of a scope (the sessions that share a
// box). Each change carries the token of its lease, and the store refuses a change whose token is
// not the scope's newest one (I-39): so a server that was stopped and wakes up late changes nothing.
// Safe for concurrent use.
type Leases interface {
	// Acquire returns the token of this server's lease on a scope. The first call takes the lease, and
	// later calls return the same token. Once another server has taken the lease, Acquire returns
	// that old token or a conflict, never a new token: the server's earlier decisions about the
	// scope are outdated. It is called before every change and must not cost a query for a lease
	// that is held.
	Acquire(ctx context.Context, scope holdfast.BoxID) (Token, error)
}

// Notifier tells the other servers on the same store about new events. The journal itself delivers
// events to the readers in its process. Safe for concurrent use.
type Notifier interface {
	// Committed tells the other servers that a session's log now ends at a sequence number. They call
	// Journal.Heard. It must not block.
	Committed(id holdfast.SessionID, head int64)
}

// alone is the Notifier of a server that is the only one on its store: it does nothing.
type alone struct{}

// Committed implements Notifier.
func (alone) Committed(holdfast.SessionID, int64) {}

// Heard tells the journal that another server has committed events, after which a session's log ends at the
// sequence number head. It wakes the live readers, which get the events from the store. Calls may come late,
// twice or out of order.
func (j *Journal) Heard(id holdfast.SessionID, head int64) {
	if f := j.feed(id); f != nil {
		f.heard(head)
	}
}

// heard sets head as the log's end and empties the tail, because this process does not have the new events in memory.
func (f *feed) heard(head int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if head <= f.head {
		return
	}
	f.head = head
	f.tail, f.tailBytes = nil, 0
	f.signal()
}
