package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/storetest"
)

var (
	_ journal.Store   = (*Store)(nil)
	_ storetest.Store = (*Store)(nil)
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

// openAt opens a store that the test closes at its end at the latest.
func openAt(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { t.Errorf("warned: %v", err) }
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plain is a second connection to a store's file, as another program has it.
func plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", Config{Path: path, busy: time.Second}.dsn())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		path := filepath.Join(t.TempDir(), "data", "holdfast.db")
		s := openAt(t, Config{Path: path, Deliver: storetest.Deliver})
		return storetest.Backend{
			Store: s,
			Reopen: func(t *testing.T) storetest.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = openAt(t, Config{Path: path, Deliver: storetest.Deliver})
				return s
			},
			Usurp: func(t *testing.T) {
				if _, err := plain(t, path).ExecContext(t.Context(), `UPDATE server SET epoch = epoch + 1`); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
