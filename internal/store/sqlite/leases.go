package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Leases gives the leases on all scopes to the one server that has the data directory: the token of
// each is its epoch, which the next server raises. It implements journal.Leases.
type Leases struct{ db *db.DB }

// Acquire implements journal.Leases.
func (l *Leases) Acquire(context.Context, holdfast.BoxID) (journal.Token, error) {
	return journal.Token(l.db.Epoch()), nil
}
