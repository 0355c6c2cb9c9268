package sqlite

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/admin"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/checkpoints"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/search"
	"github.com/holdfast-run/holdfast/internal/store/storetest"
)

// The names under which opened embeds the stores: those of the types are names of methods.
type (
	approvals  = Approvals
	agentStore = admin.Agents
	keyStore   = admin.Keys
	cpStore    = checkpoints.Store
	wsStore    = admin.Workspaces
)

// opened is a store with the methods of all its parts.
type opened struct {
	*Sessions
	*approvals
	*Audit
	*Outbox
	*Leases
	*Facts
	*agentStore
	*keyStore
	*cpStore
	*wsStore
	*search.Index
	all  *Store
	path string
}

var _ storetest.Store = (*opened)(nil)

func open(ctx context.Context, cfg Config) (*opened, error) {
	s, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &opened{s.Sessions, s.Approvals, s.Audit, s.Outbox, s.Leases, s.Facts, s.Agents, s.Keys, s.Checkpoints, s.Workspaces, s.Index, s, cfg.Path}, nil
}

// Commit commits a change with the store's token, unless the change has one.
func (s *opened) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	if c.Token == 0 {
		c.Token = journal.Token(s.Epoch())
	}
	return s.Sessions.Commit(ctx, c)
}

// contract is a store as it is, which takes changes only with a token.
type contract struct{ *opened }

func (s contract) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	return s.Sessions.Commit(ctx, c)
}

func (s *opened) Close() error      { return s.all.Close() }
func (s *opened) Epoch() uint64     { return s.all.Epoch() }
func (s *opened) Healthy() error    { return s.all.Healthy() }
func (s *opened) Damaged() []string { return s.all.Damaged() }

func (s *opened) Counts(ctx context.Context) (journal.Counts, error) { return s.all.Counts(ctx) }

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

// openAt opens a store that the test closes at its end at the latest.
func openAt(t testing.TB, cfg Config) *opened {
	t.Helper()
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { t.Errorf("warned: %v", err) }
	}
	s, err := open(t.Context(), cfg)
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
	u := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_txlock": {"immediate"}, "_pragma": {"busy_timeout(1000)", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(0)"},
	}.Encode()}
	db, err := sql.Open("sqlite", u.String())
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
			Store: contract{s},
			Reopen: func(t *testing.T) storetest.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = openAt(t, Config{Path: path, Deliver: storetest.Deliver})
				return contract{s}
			},
			Usurp: func(t *testing.T) {
				if _, err := plain(t, path).ExecContext(t.Context(), `UPDATE server SET epoch = epoch + 1`); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
