// Package admin stores the data that administrators of a server manage: deployed agents, API keys, secrets
// and workspaces, one store for each, in the same database as the sessions.
//
// Only internal/store/sqlite may import it.
//
// Invariant (I-25): a change that the audit log records and the record of the change are one transaction.
package admin

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Recorder adds a record of a change to the audit log, in the transaction of that change. by
// names the caller who asked for the change.
type Recorder interface {
	Record(t *db.Tx, typ holdfast.EventType, by string, data any) error
}
