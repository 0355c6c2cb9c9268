package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const turnCols = `id, session, number, status, message_seq, end_seq, created_at, started_at, ended_at`

// turns is the table of turns. It remembers enough of the table to answer most calls of load without a query.
type turns struct {
	get, put, update, remove, greatest *sql.Stmt
	one, list, open, openAll           *sql.Stmt

	// running are the running turns that the writer has written, with the changes of the open transaction applied.
	running map[holdfast.TurnID]journal.TurnRow
	// newest is not below the greatest turn id in the table; empty before it was read. Because ids of turns
	// rise with time, a greater id is that of a new turn.
	newest holdfast.TurnID
}

func newTurns(s *db.Setup) *turns {
	w := &turns{running: map[holdfast.TurnID]journal.TurnRow{}}
	s.Write(&w.greatest, `SELECT coalesce(max(id), '') FROM turns`)
	s.Write(&w.get, `SELECT `+turnCols+` FROM turns WHERE id = ?`)
	s.Write(&w.put, `INSERT INTO turns (`+turnCols+`) VALUES (?,?,?,?,?,?,?,?,?)`)
	s.Write(&w.update, `UPDATE turns SET status = ?, message_seq = ?, end_seq = ?, started_at = ?, ended_at = ?
		WHERE session = ? AND number = ?`)
	s.Write(&w.remove, `DELETE FROM turns WHERE session = ?`)
	s.Read(&w.one, `SELECT `+turnCols+` FROM turns WHERE session = ? AND id = ?`)
	s.Read(&w.list, `SELECT `+turnCols+` FROM turns WHERE session = ? AND number > ? ORDER BY number LIMIT ?`)
	s.Read(&w.open, `SELECT `+turnCols+` FROM turns WHERE session = ? AND status IN ('queued', 'running')
		ORDER BY number`)
	s.Read(&w.openAll, `SELECT t.id, s.id, t.number, t.status, t.message_seq, t.end_seq, t.created_at, t.started_at,
		t.ended_at FROM turns t JOIN sessions s ON s.number = t.session
		WHERE t.status IN ('queued', 'running') ORDER BY t.session, t.number`)
	return w
}

// load reads a turn within the transaction, whichever session it belongs to; false for an unknown
// turn. The result's Session is set only if the turn belongs to row, which may be nil.
func (w *turns) load(t *db.Tx, row *journal.Row, id holdfast.TurnID) (turn journal.TurnRow, ok bool, err error) {
	if turn, ok = w.running[id]; ok {
		if row == nil || turn.Session != row.ID {
			turn.Session = ""
		}
		return turn, true, nil
	}
	if w.newest == "" {
		if err := w.greatest.QueryRowContext(t.Ctx).Scan(&w.newest); err != nil {
			return turn, false, err
		}
	}
	if id > w.newest {
		return turn, false, nil
	}
	var owner int64
	turn, err = scanTurn(w.get.QueryRowContext(t.Ctx, id), &owner)
	if ok, err = db.Found(err); !ok {
		return turn, false, err
	}
	if row != nil && owner == row.Number {
		turn.Session = row.ID
	}
	return turn, true, nil
}

// write stores the planned turns of a change, for the session with this number.
func (w *turns) write(t *db.Tx, number int64, planned []journal.PlannedTurn) error {
	for i := range planned {
		p := &planned[i]
		t.Pages += 3
		var err error
		if p.New {
			_, err = w.put.ExecContext(t.Ctx, p.ID, number, p.Number, p.Status, p.MessageSeq, p.EndSeq,
				p.CreatedAt.UnixMilli(), db.ToNullMS(p.StartedAt), db.ToNullMS(p.EndedAt))
		} else {
			_, err = w.update.ExecContext(t.Ctx, p.Status, p.MessageSeq, p.EndSeq, db.ToNullMS(p.StartedAt),
				db.ToNullMS(p.EndedAt), number, p.Number)
		}
		if err != nil {
			return err
		}
		if w.newest != "" {
			w.newest = max(w.newest, p.ID)
		}
		if p.Status == holdfast.TurnRunning {
			w.running[p.ID] = p.TurnRow
		} else {
			delete(w.running, p.ID)
		}
	}
	return nil
}

// forget drops what w remembers of the table: after a rollback, after a possible write by another program, or
// after the turns of a session were removed.
func (w *turns) forget() {
	clear(w.running)
	w.newest = ""
}

// read returns the turns that st selects. They belong to the session id; if id is empty, st selects
// turns of several sessions and its second column is the session's id.
func (w *turns) read(ctx context.Context, id holdfast.SessionID, st *sql.Stmt, args ...any) ([]journal.TurnRow, error) {
	found, err := st.QueryContext(ctx, args...)
	return db.Collect("store.turns", found, err, func(sc db.Scanner) (journal.TurnRow, error) {
		owner, dst := id, any(new(int64))
		if id == "" {
			dst = &owner
		}
		t, err := scanTurn(sc, dst)
		t.Session = owner
		return t, err
	})
}

// scanTurn reads a row of turnCols, and stores the second column in session.
func scanTurn(sc db.Scanner, session any) (journal.TurnRow, error) {
	var t journal.TurnRow
	var created int64
	var started, ended sql.NullInt64
	err := sc.Scan(&t.ID, session, &t.Number, &t.Status, &t.MessageSeq, &t.EndSeq, &created, &started, &ended)
	t.CreatedAt, t.StartedAt, t.EndedAt = db.FromMS(created), db.FromNullMS(started), db.FromNullMS(ended)
	return t, err
}

// Turn returns a turn of a session; not_found for an unknown session or turn.
func (s *Sessions) Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error) {
	n, err := s.rows.numberOf(ctx, id)
	if err != nil {
		return journal.TurnRow{}, err
	}
	t, err := scanTurn(s.turns.one.QueryRowContext(ctx, n, turn), new(int64))
	t.Session = id
	return t, db.RowError("store.turn", err, func() error {
		return holdfast.Errorf(holdfast.KindNotFound, "store.turn", "session %s has no turn %s", id, holdfast.Quote(string(turn)))
	})
}

// Turns lists the turns of a session whose number is above after, in order. The limit defaults to
// 100 and is at most 1000.
func (s *Sessions) Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]journal.TurnRow, error) {
	n, err := s.rows.numberOf(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.turns.read(ctx, id, s.turns.list, n, after, db.Limit(limit, 100, 1000))
}

// OpenTurns lists the queued and running turns of a session, or of all sessions if id is empty.
func (s *Sessions) OpenTurns(ctx context.Context, id holdfast.SessionID) ([]journal.TurnRow, error) {
	if id == "" {
		return s.turns.read(ctx, "", s.turns.openAll)
	}
	n, err := s.rows.numberOf(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.turns.read(ctx, id, s.turns.open, n)
}
