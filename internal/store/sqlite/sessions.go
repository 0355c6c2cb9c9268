package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/checkpoints"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/search"
)

// Sessions is the store of sessions: their rows, logs, turns and agent states. A session changes only through
// Commit and DeleteSession, except that a change of the root key encrypts its environment again. Safe for
// concurrent use.
type Sessions struct {
	db *db.DB
	parts

	logs   *logs
	turns  *turns
	keys   *idempotency
	states *states
	purge  *purge

	starting *sql.Stmt
}

// parts are the stores that a commit of a session writes to, all in one transaction, and the search index,
// which reads the new events after the commit.
type parts struct {
	rows      *rows
	events    *events
	index     *search.Index
	approvals *Approvals
	audit     *Audit
	outbox    *Outbox

	checkpoints *checkpoints.Store
}

func newSessions(s *db.Setup, p parts) *Sessions {
	v := &Sessions{
		db: s.DB(), parts: p, logs: &logs{p.rows, p.events},
		turns: newTurns(s), keys: newIdempotency(s), states: newStates(s), purge: newPurge(s, p.events, p.index),
	}
	s.Read(&v.starting, `SELECT id FROM sessions WHERE status = 'starting' ORDER BY number`)
	s.Join(db.Member{
		Flush: func(t *db.Tx) error {
			v.rows.hide()
			return v.events.flush(t)
		},
		Forget: func() {
			v.rows.forget()
			v.turns.forget()
		},
		Committed: func() { v.index.Touch(v.rows.committed()...) },
		Undone: func() {
			v.events.waiting = nil
			v.rows.undone()
			v.turns.forget()
		},
	})
	return v
}

// Row returns the row of a session; not_found for an unknown one.
func (s *Sessions) Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	if row := s.rows.lately(ctx, id); row != nil {
		return row.Clone(), nil
	}
	row, err := scanRow(s.rows.one.QueryRowContext(ctx, id))
	return row, db.RowError("store.row", err, func() error { return journal.NoSession(id) })
}

// Head implements journal.Store.
func (s *Sessions) Head(ctx context.Context, id holdfast.SessionID) (int64, error) {
	if row := s.rows.lately(ctx, id); row != nil {
		return row.LastSeq, nil
	}
	var last sql.NullInt64
	err := s.rows.head.QueryRowContext(ctx, id).Scan(&last)
	return last.Int64 & journal.MaxSeq, db.RowError("store.head", err, func() error { return journal.NoSession(id) })
}

// Events implements journal.Store: it returns a page of the events after a sequence number;
// not_found for an unknown session. A page also ends once it has 4 MiB of payload, so only an
// empty page marks the end of the log. The limit defaults to 100 and is at most 1000.
func (s *Sessions) Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error) {
	if after < 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "store.events", "cannot read events after #%d: the sequence number is negative", after)
	}
	n, err := s.rows.numberOf(ctx, id)
	if err != nil || after > journal.MaxSeq {
		return nil, err
	}
	return s.events.read(ctx, id, n, after, limit)
}

// Rows returns a page of sessions, newest first. The cursor is the number of a session, so
// a session created between two pages does not make a page repeat or skip another session.
func (s *Sessions) Rows(ctx context.Context, q journal.Query) (journal.Page, error) {
	if q.Limit < 0 || q.Limit > 500 {
		return journal.Page{}, holdfast.Errorf(holdfast.KindInvalid, "store.rows", "the limit of sessions, %q, is not between 1 and 500",
			strconv.Itoa(q.Limit))
	}
	limit := db.Limit(q.Limit, 50, 500)
	where, args, err := filter(q)
	if err != nil {
		return journal.Page{}, err
	}
	if q.Words != "" {
		s.index.Settle(ctx, search.Patience)
	}
	query := `SELECT ` + rowCols + `, ` + lastSeq + ` FROM sessions` + where + ` ORDER BY number DESC LIMIT ?`
	found, err := s.db.Reads().QueryContext(ctx, query, append(args, limit+1)...)
	list, err := db.Collect("store.rows", found, err, scanRow)
	if err != nil {
		return journal.Page{}, err
	}
	p := journal.Page{Rows: list}
	if len(p.Rows) > limit {
		p.Rows = p.Rows[:limit]
		p.Next = db.EncodeCursor('s', p.Rows[limit-1].Number)
	}
	return p, nil
}

// filter returns the SQL WHERE clause for q, and its arguments.
func filter(q journal.Query) (string, []any, error) {
	var conds []string
	var args []any
	add := func(cond string, values ...any) {
		conds, args = append(conds, cond), append(args, values...)
	}
	add(`(purge_at IS NOT NULL) = ?`, q.Trash)
	if q.Status != "" {
		if _, err := holdfast.Parse[holdfast.Status](string(q.Status)); err != nil {
			return "", nil, err
		}
		add(`status = ?`, string(q.Status))
	}
	if q.Agent != "" {
		add(`agent = ?`, string(q.Agent))
	}
	if q.Workspace != "" {
		add(`sessions.workspace = ?`, q.Workspace)
	}
	if q.Tag != "" {
		add(`EXISTS (SELECT 1 FROM json_each(sessions.tags) WHERE value = ?)`, q.Tag)
	}
	if q.Text != "" {
		add(`instr(title_fold, ?) > 0`, strings.ToLower(q.Text))
	}
	if q.Words != "" {
		match, err := search.Match(q.Words)
		if err != nil {
			return "", nil, err
		}
		add(`number IN (SELECT rowid >> 32 FROM search WHERE search MATCH ?)`, match)
	}
	if p := strings.ToLower(q.IDPart); p != "" {
		// Ids consist of 0-9, a-f and the hyphen, which are all below the tilde, so p+"~" is above each id
		// that begins with p. Both parts of the UNION read only the index of the ids.
		add(`number IN (SELECT number FROM sessions WHERE id >= ? AND id < ?
			UNION SELECT number FROM sessions WHERE substr(id, -?) = ?)`, p, p+"~", len(p), p)
	}
	if q.Title != "" {
		add(`title_fold = ?`, strings.ToLower(q.Title))
	}
	if p := strings.ToLower(q.TitlePrefix); p != "" {
		add(`substr(title_fold, 1, ?) = ?`, utf8.RuneCountInString(p), p)
	}
	if q.Cursor != "" {
		n, err := db.DecodeCursor('s', q.Cursor)
		if err != nil {
			return "", nil, err
		}
		add(`number < ?`, n)
	}
	return ` WHERE ` + strings.Join(conds, ` AND `), args, nil
}

// KeyRef returns the id that the request with this idempotency key created: empty for a new key,
// conflict if the key was used for another request.
func (s *Sessions) KeyRef(ctx context.Context, k journal.Key) (string, error) {
	ref, err := keyRef(&k, s.keys.read.QueryRowContext(ctx, k.Scope, k.Value))
	if err != nil {
		return "", db.Failure("store.key", err)
	}
	return ref, nil
}

// Starting lists the sessions in status starting. After a crash these are the sessions whose resume
// was interrupted.
func (s *Sessions) Starting(ctx context.Context) ([]holdfast.SessionID, error) {
	found, err := s.starting.QueryContext(ctx)
	return db.Collect("store.starting", found, err, scanID)
}
