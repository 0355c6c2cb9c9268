package checkpoints

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Verify checks the tables of checkpoints, packs and marks within the transaction tx, and calls problem for each
// fault: a pack whose id or size is wrong; a checkpoint whose session does not exist, that is beyond the end of its
// session's log, or whose packs or tree ids are wrong; a mark whose checkpoint does not exist. An error means
// that a table could not be read.
func Verify(ctx context.Context, tx *sql.Tx, problem func(format string, args ...any)) error {
	stored, err := verifyPacks(ctx, tx, problem)
	if err != nil {
		return err
	}
	if err := verifyRows(ctx, tx, stored, problem); err != nil {
		return err
	}
	return verifyRestores(ctx, tx, problem)
}

// verifyPacks checks the packs and returns their numbers.
func verifyPacks(ctx context.Context, tx *sql.Tx, problem func(string, ...any)) (map[int64]bool, error) {
	stored := map[int64]bool{}
	rows, err := tx.QueryContext(ctx, `SELECT number, length(id), bytes FROM packs`)
	return stored, db.Each(rows, err, func(sc db.Scanner) error {
		var number, length, bytes int64
		if err := sc.Scan(&number, &length, &bytes); err != nil {
			return err
		}
		stored[number] = true
		if length != 32 || bytes < 1 {
			problem("pack number %d has an id of %d bytes, which should be 32, and a size of %d bytes", number, length, bytes)
		}
		return nil
	})
}

func verifyRows(ctx context.Context, tx *sql.Tx, stored map[int64]bool, problem func(string, ...any)) error {
	rows, err := tx.QueryContext(ctx, `SELECT c.id, c.session, coalesce(s.id, ''), c.seq, length(c.workspace), length(c.home), c.packs,
		coalesce((SELECT max(id) FROM events WHERE id BETWEEN c.session << 32 AND c.session << 32 | 4294967295), 0)
		FROM checkpoints c LEFT JOIN sessions s ON s.number = c.session`)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var id, session string
		var number, seq, workspace, home, head int64
		var raw []byte
		if err := sc.Scan(&id, &number, &session, &seq, &workspace, &home, &raw, &head); err != nil {
			return err
		}
		if session == "" {
			problem("checkpoint %s belongs to session number %d, which does not exist", id, number)
			return nil
		}
		if head &= journal.MaxSeq; seq < 1 || seq > head {
			problem("checkpoint %s of session %s is at event #%d, but its log ends at event #%d", id, session, seq, head)
		}
		if !tree(workspace) || !tree(home) {
			problem("checkpoint %s of session %s has tree ids of %d and %d bytes, but an id has 0 or 32 bytes", id, session, workspace, home)
		}
		packs, err := decodeNumbers(raw)
		if err != nil {
			problem("checkpoint %s of session %s: %v", id, session, err)
		}
		for _, p := range packs {
			if !stored[p] {
				problem("checkpoint %s of session %s needs pack number %d, which does not exist", id, session, p)
			}
		}
		return nil
	})
}

// tree reports whether the stored id of a file tree can have this length in bytes: 32, or 0 for a tree without files.
func tree(length int64) bool { return length == 0 || length == 32 }

func verifyRestores(ctx context.Context, tx *sql.Tx, problem func(string, ...any)) error {
	rows, err := tx.QueryContext(ctx, `SELECT scope, checkpoint FROM restores r WHERE NOT EXISTS
		(SELECT 1 FROM checkpoints c JOIN sessions s ON s.number = c.session WHERE c.id = r.checkpoint AND c.session = r.session)`)
	return db.Each(rows, err, func(sc db.Scanner) error {
		var scope, id string
		if err := sc.Scan(&scope, &id); err != nil {
			return err
		}
		problem("the files of box %s are being replaced by those of checkpoint %s, which does not exist", scope, id)
		return nil
	})
}
