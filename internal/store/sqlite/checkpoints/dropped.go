package checkpoints

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// dropped is the table that records, for checkpoints that were dropped, at which event of their session they were.
type dropped struct {
	put, begin, remove *sql.Stmt
	between            *sql.Stmt
}

func newDropped(s *db.Setup) *dropped {
	d := &dropped{}
	s.Write(&d.put, `INSERT OR IGNORE INTO dropped_checkpoints (session, seq)
		SELECT session, seq FROM checkpoints WHERE id IN (SELECT value FROM json_each(?))
		AND session = (SELECT number FROM sessions WHERE id = ?)`)
	s.Write(&d.begin, `INSERT OR IGNORE INTO dropped_checkpoints (session, seq) VALUES (?, 1)`)
	s.Write(&d.remove, `DELETE FROM dropped_checkpoints WHERE session = ?`)
	s.Read(&d.between, `SELECT 1 FROM dropped_checkpoints WHERE session = (SELECT number FROM sessions WHERE id = ?)
		AND seq > ? AND seq <= ? LIMIT 1`)
	return d
}

// Dropped reports whether a dropped checkpoint of a session was at an event that lies in one of the spans and has a
// number above after. A fork counts as a session with a dropped checkpoint at event #1.
func (c *Store) Dropped(ctx context.Context, session holdfast.SessionID, branch []journal.Span, after int64) (bool, error) {
	for _, s := range branch {
		ok, err := found(c.dropped.between.QueryRowContext(ctx, session, max(s.After, after), s.Upto))
		if err != nil {
			return false, db.Failure("store.checkpoint", err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}
