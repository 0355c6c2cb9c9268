package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Fact reads a value that the server remembers from one start to the next; ok is
// false when it was never set.
func (s *Store) Fact(ctx context.Context, name string) (value string, ok bool, err error) {
	row := s.readDB.QueryRowContext(ctx, `SELECT value FROM facts WHERE name = ?`, name)
	if ok, err = found(row.Scan(&value)); err != nil {
		return "", false, failure("store.fact", err)
	}
	return value, ok, nil
}

// SetFact stores a value under a name, replacing the former one. It is on disk on
// return, in one transaction that compares the epoch like every other.
func (s *Store) SetFact(ctx context.Context, name, value string) error {
	if name == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "store.fact", "a fact needs a name")
	}
	if err := journal.CheckText("fact", name, value); err != nil {
		return err
	}
	return s.do(ctx, "store.fact", &op{
		plan: func(*tx) error { return nil },
		apply: func(t *tx) error {
			_, err := t.s.conn.ExecContext(t.ctx, `INSERT INTO facts (name, value) VALUES (?,?)
				ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
			return err
		},
	})
}
