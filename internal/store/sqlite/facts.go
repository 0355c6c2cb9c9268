package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Facts keeps values that the server remembers from one start to the next. Safe for
// concurrent use.
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

// Fact returns the value of a name; ok is false when it was never set.
func (f *Facts) Fact(ctx context.Context, name string) (value string, ok bool, err error) {
	if ok, err = db.Found(f.get.QueryRowContext(ctx, name).Scan(&value)); err != nil {
		return "", false, db.Failure("store.fact", err)
	}
	return value, ok, nil
}

// SetFact stores a value under a name, replacing the former one. It is on disk on
// return.
func (f *Facts) SetFact(ctx context.Context, name, value string) error {
	if name == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "store.fact", "a fact needs a name")
	}
	if err := journal.CheckText("fact", name, value); err != nil {
		return err
	}
	return f.db.Do(ctx, "store.fact", &db.Op{Apply: func(t *db.Tx) error {
		_, err := f.set.ExecContext(t.Ctx, name, value)
		return err
	}})
}
