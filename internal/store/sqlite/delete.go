package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// DeleteSession implements engine.Store: conflict unless the session has ended.
// Row, turns and keys go at once, and with them every way to reach the log; its
// events follow in the background, a few per transaction, also after a crash.
func (s *Store) DeleteSession(ctx context.Context, id holdfast.SessionID) error {
	var row *journal.Row
	plan := func(t *tx) error {
		var err error
		if row, err = t.load(id); err != nil {
			return err
		}
		if row == nil {
			return journal.NoSession(id)
		}
		if row.Status != holdfast.StatusEnded {
			return holdfast.Errorf(holdfast.KindConflict, "store.delete", "session %s is %s, not ended", id, row.Status).
				WithHint("holdfast session end %s", id)
		}
		return nil
	}
	apply := func(t *tx) error {
		t.pages += 8
		t.s.cache.drop(id)
		t.touched = append(t.touched, id)
		t.ruled = append(t.ruled, string(id))
		var key sql.NullString
		if err := t.s.w.deleteRow.QueryRowContext(t.ctx, row.Number).Scan(&key); err != nil {
			return err
		}
		if key.Valid {
			if _, err := t.s.w.keys.delete.ExecContext(t.ctx, key.String, id); err != nil {
				return err
			}
		}
		for _, d := range []struct {
			st  *sql.Stmt
			arg any
		}{
			{t.s.w.deleteTurns, row.Number},
			{t.s.w.keys.deleteScope, "turn:" + string(id)},
			{t.s.w.search.forget, row.Number},
			{t.s.w.approvals.delete, row.Number},
			{t.s.w.approvals.deleteRule, string(id)},
			{t.s.w.states.delete, row.Number},
			{t.s.w.purgePut, row.Number},
		} {
			if _, err := d.st.ExecContext(t.ctx, d.arg); err != nil {
				return err
			}
		}
		return nil
	}
	err := s.do(ctx, "store.delete", &op{plan: plan, apply: apply})
	if err == nil {
		s.janitor.nudge()
	}
	return err
}
