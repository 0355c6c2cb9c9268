package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/search"
)

// purgeEvents is the most events of a deleted session that one transaction removes.
const purgeEvents = 2000

// DeleteSession removes an ended session; conflict for a session that has not ended, and for one with
// a checkpoint whose files are being put into another scope. Its row, turns, agent states, approvals,
// rules, idempotency keys and checkpoints are removed at once, after which its log cannot be reached. Its events are removed in
// the background, some per transaction, also after a crash. Packs stay.
func (s *Sessions) DeleteSession(ctx context.Context, id holdfast.SessionID) error {
	var row *journal.Row
	plan := func(t *db.Tx) error {
		var err error
		if row, err = s.rows.load(t, id); err != nil {
			return err
		}
		if row == nil {
			return journal.NoSession(id)
		}
		if row.Status != holdfast.StatusEnded {
			return holdfast.Errorf(holdfast.KindConflict, "store.delete", "session %s cannot be deleted: it is %s, not ended", id, row.Status).
				WithHint("end the session first: holdfast session end %s", id)
		}
		return s.checkpoints.Releases(t, row)
	}
	apply := func(t *db.Tx) error {
		t.Pages += 8
		// Delete the copies from before migrations first: after a crash they would still contain the session.
		if err := s.db.DropCopies(); err != nil {
			return err
		}
		key, err := s.rows.delete(t, row)
		if err != nil {
			return err
		}
		if key.Valid {
			if _, err := s.keys.remove.ExecContext(t.Ctx, key.String, id); err != nil {
				return err
			}
		}
		for _, d := range []struct {
			st  *sql.Stmt
			arg any
		}{
			{s.turns.remove, row.Number},
			{s.keys.removeScope, "turn:" + string(id)},
			{s.states.remove, row.Number},
			{s.purge.put, row.Number},
		} {
			if _, err := d.st.ExecContext(t.Ctx, d.arg); err != nil {
				return err
			}
		}
		s.turns.forget()
		if err := s.index.Forget(t, row.Number); err != nil {
			return err
		}
		if err := s.checkpoints.Forget(t, row); err != nil {
			return err
		}
		return s.approvals.deleteSession(t, row)
	}
	err := s.db.Do(ctx, "store.delete", &db.Op{Plan: plan, Apply: apply})
	if err == nil {
		s.db.Tidy()
	}
	return err
}

// purge removes the logs of deleted sessions in the background. The table purge lists the numbers
// of the sessions whose logs are not completely removed.
type purge struct {
	db     *db.DB
	events *events
	index  *search.Index

	put, next, done *sql.Stmt
}

func newPurge(s *db.Setup, e *events, x *search.Index) *purge {
	p := &purge{db: s.DB(), events: e, index: x}
	s.Write(&p.put, `INSERT INTO purge (session) VALUES (?)`)
	s.Write(&p.next, `SELECT session FROM purge LIMIT 1`)
	s.Write(&p.done, `DELETE FROM purge WHERE session = ?`)
	s.Clean(db.Cleaner{Purge: p.run, Wipe: x.Merge})
	return p
}

// run removes the logs of all listed sessions, a part per transaction. removed reports whether it
// removed anything.
func (p *purge) run(ctx context.Context) (removed bool, err error) {
	for !p.db.Stops() {
		more, err := p.some(ctx)
		switch {
		case err == nil:
			removed = true
		case !more && holdfast.IsKind(err, holdfast.KindNotFound):
			return removed, nil
		default:
			return removed, err
		}
	}
	return removed, nil
}

// some removes a part of the log of one listed session. more reports whether a session was listed. If none
// was, some returns errNothing.
func (p *purge) some(ctx context.Context) (more bool, err error) {
	var number int64
	err = p.db.Do(ctx, "store.purge", &db.Op{
		Plan: func(t *db.Tx) error {
			var err error
			more, err = db.Found(p.next.QueryRowContext(t.Ctx).Scan(&number))
			if err == nil && !more {
				return errNothing
			}
			return err
		},
		Apply: func(t *db.Tx) error {
			t.Pages += purgeEvents / 8
			// Remove the session's words from the index first: the log stays as long as the index has any of them.
			if left, err := p.index.Purge(t, number); err != nil || left {
				return err
			}
			if left, err := p.events.purgeSome(t, number); err != nil || left {
				return err
			}
			_, err := p.done.ExecContext(t.Ctx, number)
			return err
		},
	})
	return more, err
}

// errNothing ends a purge transaction when no deleted session is listed. purge.run takes it as the end of its
// work and does not return it.
var errNothing = holdfast.Errorf(holdfast.KindNotFound, "store.purge", "no deleted session has a stored log to remove")
