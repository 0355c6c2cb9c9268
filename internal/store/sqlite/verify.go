package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/checkpoints"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Verified is the result of Verify. Problems lists at most a hundred problems.
type Verified struct {
	Sessions, Events int64
	// Unsummed is the number of events without a checksum, from before checksums existed.
	Unsummed int64
	Problems []string
	// Rows has an entry for each session; nil if the sessions cannot be read.
	Rows map[holdfast.SessionID]VerifiedRow
	// Secrets are the sealed values of the credential store, by name.
	Secrets map[holdfast.SecretName][]byte
	// Environments are the sealed environments of workspaces.
	Environments map[holdfast.Slug][]byte
	// Versions are the versions of all agents; a version that several agents have is listed once.
	Versions []holdfast.VersionID
	// Heads is the number of signed heads of the audit log.
	Heads int64
}

// VerifiedRow is the part of a session that tells which files it should have outside the database.
type VerifiedRow struct {
	Ended, HadFiles bool
	// Workspace is the session's workspace, empty for none; Dir is its directory if that is one of the user's own.
	Workspace holdfast.Slug
	Dir       string
	// Kept is true if a checkpoint holds the session's files.
	Kept bool
	// Env is the sealed environment; nil if the session has none.
	Env []byte
}

func (v *Verified) problem(format string, args ...any) {
	if len(v.Problems) < db.MaxDamage {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	}
}

// Verify checks a whole database, which a server may be using: its pages, the checksum of each event, the
// sequence numbers of each session's log, the events at which turns begin and end, the checkpoints with their
// packs, and whether the write-ahead log is missing. It changes nothing. Problems of the database are in the
// result; an error means that the database could not be read at all.
func Verify(ctx context.Context, path string) (Verified, error) {
	had := db.HasLog(path)
	v, err := verify(ctx, path)
	if !had && db.HasLog(path) && (err != nil || len(v.Problems) > 0) {
		v, err = verify(ctx, path) // a server opened the database while it was checked: check again
	}
	return v, err
}

func verify(ctx context.Context, path string) (v Verified, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return v, holdfast.Errorf(holdfast.KindNotFound, "store.verify", "the database cannot be found: %w", err)
	}
	if info.Size() == 0 {
		v.problem("the database file %s is empty", path)
		return v, nil
	}
	if lost := db.LostLog(path); lost != "" {
		v.problem("%s", lost)
	}
	file, err := db.Look(path)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// One transaction reads all, so that writes of a running server do not show up halfway.
	tx, err := file.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		if db.Gone(err) {
			v.problem("%v", err)
			return v, nil
		}
		return v, db.OpenError(path, err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, look := range []func(context.Context, *sql.Tx) error{v.pages, v.logs, v.turns, v.checkpoints, v.rows, v.sealed, v.versions} {
		if err := look(ctx, tx); err != nil {
			if ctx.Err() != nil {
				return v, db.Failure("store.verify", err)
			}
			v.problem("%v", err)
		}
	}
	return v, nil
}

func (v *Verified) pages(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `PRAGMA integrity_check(20)`)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var said string
		if err := sc.Scan(&said); err != nil {
			return err
		}
		if said != "ok" {
			v.problem("SQLite's integrity check found: %s", said)
		}
		return nil
	})
}

// logs checks all events: their checksums, and that the sequence numbers of each log have no gap.
func (v *Verified) logs(ctx context.Context, tx *sql.Tx) error {
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sessions`).Scan(&v.Sessions); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, `SELECT e.id, e.type, e.turn, e.at, e.data, e.sum, e.agent, coalesce(s.id, ''), p.session IS NOT NULL
		FROM events e LEFT JOIN sessions s ON s.number = e.id >> 32 LEFT JOIN purge p ON p.session = e.id >> 32 ORDER BY e.id`)
	var last int64
	return db.Each(rows, err, func(sc db.Scanner) error {
		var id, at, sum int64
		var e holdfast.Event
		var session string
		var purged bool
		err := sc.Scan(&id, &e.Type, &e.Turn, &at, (*[]byte)(&e.Data), &sum, &e.Agent, &session, &purged)
		v.Events++
		number, seq := id>>32, id&journal.MaxSeq
		was := last
		last = id
		switch {
		case purged:
			return nil
		case session == "":
			v.problem("event #%d belongs to session number %d, which does not exist", seq, number)
			return nil
		case was>>32 == number && seq != was&journal.MaxSeq+1, was>>32 != number && seq != 1:
			v.problem("the log of session %s has event #%d where event #%d was expected", session, seq, expected(was, number))
		}
		if err != nil || !whole(id, at, &e, sum) {
			v.problem("event #%d of session %s is damaged", seq, session)
		}
		if sum < 0 {
			v.Unsummed++
		}
		return nil
	})
}

// expected returns the sequence number of the event that must follow in the log of the session number. was is
// the key of the event before; if that belongs to another session, it is 1.
func expected(was, number int64) int64 {
	if was>>32 == number {
		return was&journal.MaxSeq + 1
	}
	return 1
}

// turns checks that no turn begins or ends at an event beyond the end of its session's log.
func (v *Verified) turns(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `SELECT sessions.id, t.number, max(t.message_seq, t.end_seq), coalesce(`+lastSeq+`, 0)
		FROM turns t JOIN sessions ON sessions.number = t.session`)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var session string
		var number, seq, head int64
		if err := sc.Scan(&session, &number, &seq, &head); err != nil {
			return err
		}
		if seq > head&journal.MaxSeq {
			v.problem("turn %d of session %s begins or ends at event #%d, but the session's log ends at event #%d", number, session, seq, head&journal.MaxSeq)
		}
		return nil
	})
}

// checkpoints checks the checkpoints, packs and marks.
func (v *Verified) checkpoints(ctx context.Context, tx *sql.Tx) error {
	return checkpoints.Verify(ctx, tx, v.problem)
}

// rows collects the VerifiedRow of each session.
func (v *Verified) rows(ctx context.Context, tx *sql.Tx) (err error) {
	v.Rows = map[holdfast.SessionID]VerifiedRow{}
	defer func() {
		if err != nil {
			v.Rows = nil
		}
	}()
	rows, err := tx.QueryContext(ctx, `SELECT id, status = ?, had_files, s.sealed_env,
		EXISTS (SELECT 1 FROM checkpoints c WHERE c.session = s.number AND c.workspace <> x''), coalesce(s.workspace, ''), coalesce(w.dir, '')
		FROM sessions s LEFT JOIN workspaces w ON w.slug = s.workspace`, holdfast.StatusEnded)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var id holdfast.SessionID
		var r VerifiedRow
		if err := sc.Scan(&id, &r.Ended, &r.HadFiles, &r.Env, &r.Kept, &r.Workspace, &r.Dir); err != nil {
			return err
		}
		v.Rows[id] = r
		return nil
	})
}

// sealed collects the secrets and the environments of workspaces, and counts the signed audit heads. All of them
// need keys of the data directory.
func (v *Verified) sealed(ctx context.Context, tx *sql.Tx) error {
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM audit_heads`).Scan(&v.Heads); err != nil {
		return err
	}
	v.Secrets = map[holdfast.SecretName][]byte{}
	if err := collect(ctx, tx, v.Secrets, `SELECT name, sealed FROM secrets`); err != nil {
		return err
	}
	v.Environments = map[holdfast.Slug][]byte{}
	return collect(ctx, tx, v.Environments, `SELECT slug, sealed_env FROM workspaces WHERE sealed_env IS NOT NULL`)
}

// versions collects the versions of agents. Their files are outside the database.
func (v *Verified) versions(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, `SELECT DISTINCT id FROM agent_versions ORDER BY id`)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var id holdfast.VersionID
		if err := sc.Scan(&id); err != nil {
			return err
		}
		v.Versions = append(v.Versions, id)
		return nil
	})
}

// collect reads rows of a name and a sealed value.
func collect[N ~string](ctx context.Context, tx *sql.Tx, to map[N][]byte, query string) error {
	rows, err := tx.QueryContext(ctx, query)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var name N
		var sealed []byte
		if err := sc.Scan(&name, &sealed); err != nil {
			return err
		}
		to[name] = sealed
		return nil
	})
}

// NeededPacks returns the ids of the packs that the checkpoints in a database need. A server may be using the
// database.
func NeededPacks(ctx context.Context, path string) (ids [][32]byte, err error) {
	file, err := db.Look(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	rows, err := file.QueryContext(ctx, `SELECT id FROM packs WHERE unused IS NULL ORDER BY number`)
	if err != nil {
		return nil, db.OpenError(path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, db.OpenError(path, err)
		}
		if len(id) == 32 { // Verify reports packs whose id has another length
			ids = append(ids, [32]byte(id))
		}
	}
	return ids, rows.Err()
}
