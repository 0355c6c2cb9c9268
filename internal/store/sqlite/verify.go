package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfast-run/holdfast"
)

// Verified is what a database turned out to hold. Problems are at most a hundred.
type Verified struct {
	Sessions, Events int64
	// Unsummed are the events from before there were checksums.
	Unsummed int64
	Problems []string
}

func (v *Verified) problem(format string, args ...any) {
	if len(v.Problems) < maxDamage {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	}
}

// looking is a way into a database that leaves its files as they are, the log of a
// server that was killed included.
func looking(path string) string {
	return Config{Path: path, busy: time.Second}.dsn("query_only(1)") + "&mode=ro"
}

// Verify reads all of a database, which a server may be using: its pages, the checksum
// of each event, the numbers of each log, and where turns end. It changes nothing.
// The problems of the database are in what it returns; an error says that it could not
// be looked at.
func Verify(ctx context.Context, path string) (v Verified, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return v, holdfast.Errorf(holdfast.KindNotFound, "store.verify", "%w", err)
	}
	if info.Size() == 0 {
		v.problem("%s is empty", path)
		return v, nil
	}
	c, err := sqlite.NewConnector(looking(path))
	if err != nil {
		return v, openError(path, err)
	}
	db := sql.OpenDB(c)
	defer func() { err = errors.Join(err, db.Close()) }()
	// One transaction: a server that writes meanwhile moves nothing under us.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		if unreadable(err) || lost(err) {
			v.problem("%v", err)
			return v, nil
		}
		return v, openError(path, err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, look := range []func(context.Context, *sql.Tx) error{v.pages, v.logs, v.turns} {
		if err := look(ctx, tx); err != nil {
			if ctx.Err() != nil {
				return v, failure("store.verify", err)
			}
			v.problem("%v", err)
		}
	}
	return v, nil
}

func (v *Verified) pages(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `PRAGMA integrity_check(20)`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var said string
		if err := rows.Scan(&said); err != nil {
			return err
		}
		if said != "ok" {
			v.problem("integrity check: %s", said)
		}
	}
	return rows.Err()
}

// logs walks all events in the order of their keys, which is that of the logs.
func (v *Verified) logs(ctx context.Context, tx *sql.Tx) error {
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sessions`).Scan(&v.Sessions); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, `SELECT e.id, e.type, e.turn, e.at, e.data, e.sum, coalesce(s.id, ''), p.session IS NOT NULL
		FROM events e LEFT JOIN sessions s ON s.number = e.id >> 32 LEFT JOIN purge p ON p.session = e.id >> 32 ORDER BY e.id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var last int64
	for rows.Next() {
		var id, at, sum int64
		var typ, turn, session string
		var data []byte
		var purged bool
		err := rows.Scan(&id, &typ, &turn, &at, &data, &sum, &session, &purged)
		v.Events++
		number, seq := id>>32, id&maxSeq
		was := last
		last = id
		switch {
		case purged:
			continue
		case session == "":
			v.problem("event #%d belongs to session number %d, which is not there", seq, number)
			continue
		case was>>32 == number && seq != was&maxSeq+1, was>>32 != number && seq != 1:
			v.problem("the log of session %s has #%d where #%d was expected", session, seq, expected(was, number))
		}
		if err != nil || !whole(id, at, typ, turn, data, sum) {
			v.problem("event #%d of session %s is damaged", seq, session)
		}
		if sum < 0 {
			v.Unsummed++
		}
	}
	return rows.Err()
}

// expected is the number that follows in a log.
func expected(was, number int64) int64 {
	if was>>32 == number {
		return was&maxSeq + 1
	}
	return 1
}

// turns compares what turns point at with where their logs end.
func (v *Verified) turns(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `SELECT sessions.id, t.number, max(t.message_seq, t.end_seq), coalesce(`+lastSeq+`, 0)
		FROM turns t JOIN sessions ON sessions.number = t.session`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var session string
		var number, seq, head int64
		if err := rows.Scan(&session, &number, &seq, &head); err != nil {
			return err
		}
		if seq > head&maxSeq {
			v.problem("turn %d of session %s ends at #%d, its log at #%d", number, session, seq, head&maxSeq)
		}
	}
	return rows.Err()
}

// Sealed counts what the keys of the data directory have sealed or signed: it is lost
// without them.
func (s *Store) Sealed(ctx context.Context) (environments, secrets, heads int64, err error) {
	row := s.readDB.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM sessions WHERE sealed_env IS NOT NULL),
		(SELECT count(*) FROM secrets), (SELECT count(*) FROM audit_heads)`)
	if err := row.Scan(&environments, &secrets, &heads); err != nil {
		return 0, 0, 0, failure("store.sealed", err)
	}
	return environments, secrets, heads, nil
}
