package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Leases gives the leases on all scopes to the one server that holds the lock of the data directory. The token of each
// lease is the server's epoch, which is higher for the next server. It implements journal.Leases.
type Leases struct{ db *db.DB }

// Acquire implements journal.Leases.
func (l *Leases) Acquire(context.Context, holdfast.BoxID) (journal.Token, error) {
	return journal.Token(l.db.Epoch()), nil
}
