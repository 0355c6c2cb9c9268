package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Facts stores named values that the server needs again after a restart. Safe for concurrent use.
type Facts struct {
	db       *db.DB
	get, set *sql.Stmt
}

func newFacts(s *db.Setup) *Facts {
	f := &Facts{db: s.DB()}
	s.Read(&f.get, `SELECT value FROM facts WHERE name = ?`)
	s.Write(&f.set, `INSERT INTO facts (name, value) VALUES (?,?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`)
	return f
}

// Fact returns the value stored under a name; ok is false if none was ever stored.
func (f *Facts) Fact(ctx context.Context, name string) (value string, ok bool, err error) {
	if ok, err = db.Found(f.get.QueryRowContext(ctx, name).Scan(&value)); err != nil {
		return "", false, db.Failure("store.fact", err)
	}
	return value, ok, nil
}

// SetFact stores a value under a name, replacing the former value. The value is on disk when
// SetFact returns.
func (f *Facts) SetFact(ctx context.Context, name, value string) error {
	if name == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "store.fact", "a fact cannot be stored in the database under an empty name")
	}
	if err := journal.CheckText("fact", name, value); err != nil {
		return err
	}
	return f.db.Do(ctx, "store.fact", &db.Op{Apply: func(t *db.Tx) error {
		_, err := f.set.ExecContext(t.Ctx, name, value)
		return err
	}})
}
