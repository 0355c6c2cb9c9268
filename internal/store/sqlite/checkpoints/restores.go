package checkpoints

import (
	"database/sql"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// restores is the table of marks: the scopes whose files are being replaced.
type restores struct {
	of, foreign, marked *sql.Stmt
	put, remove         *sql.Stmt
	one, all            *sql.Stmt
}

func newRestores(s *db.Setup) *restores {
	const cols = `SELECT r.scope, s.id, r.checkpoint FROM restores r JOIN sessions s ON s.number = r.session`
	r := &restores{}
	s.Write(&r.of, `SELECT 1 FROM restores WHERE scope = ?`)
	s.Write(&r.foreign, `SELECT scope FROM restores WHERE session = ? AND scope <> ? LIMIT 1`)
	s.Write(&r.marked, `SELECT scope, checkpoint FROM restores
		WHERE checkpoint IN (SELECT value FROM json_each(?)) LIMIT 1`)
	s.Write(&r.put, `INSERT INTO restores (scope, session, checkpoint)
		VALUES (?1, (SELECT session FROM checkpoints WHERE id = ?2), ?2)
		ON CONFLICT DO UPDATE SET session = excluded.session, checkpoint = excluded.checkpoint`)
	s.Write(&r.remove, `DELETE FROM restores WHERE scope = ?`)
	s.Read(&r.one, cols+` WHERE r.scope = ?`)
	s.Read(&r.all, cols+` ORDER BY r.scope`)
	return r
}

// set sets or removes the mark of a scope.
func (r *restores) set(t *db.Tx, m *journal.Restore) error {
	t.Pages++
	var err error
	if m.Checkpoint == "" {
		_, err = r.remove.ExecContext(t.Ctx, m.Scope)
	} else {
		_, err = r.put.ExecContext(t.Ctx, m.Scope, m.Checkpoint)
	}
	return err
}

// scanRestore reads a row with the scope, the id of the session and the checkpoint of a mark.
func scanRestore(sc db.Scanner) (r journal.Restore, err error) {
	err = sc.Scan(&r.Scope, &r.Session, &r.Checkpoint)
	return r, err
}
