// Package oldest lists sessions in the order in which they began to wait.
//
// The engine uses it; it imports only the vocabulary. Invariant: a session is in a list at most once.
package oldest

import (
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// List lists sessions, the one that has waited longest first. The zero value is ready. Safe for concurrent use.
type List struct {
	mu  sync.Mutex
	ids []holdfast.SessionID
}

// Add appends a session and removes the oldest ones beyond most, which it returns.
func (l *List) Add(id holdfast.SessionID, most int) (over []holdfast.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(slices.DeleteFunc(l.ids, func(other holdfast.SessionID) bool { return other == id }), id)
	n := max(len(l.ids)-most, 0)
	over, l.ids = slices.Clone(l.ids[:n]), slices.Delete(l.ids, 0, n)
	return over
}

// Drop removes a session from the list, if it is there.
func (l *List) Drop(id holdfast.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = slices.DeleteFunc(l.ids, func(other holdfast.SessionID) bool { return other == id })
}
