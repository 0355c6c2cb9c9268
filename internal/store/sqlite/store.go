package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/admin"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/checkpoints"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/search"
)

// Space tells which writes the database accepts on its disk.
type Space = db.Space

// Config configures a Store. Zero values take the defaults, which for fields of the same name are
// those of db.Config.
type Config struct {
	// Path is the database file; its directory must belong to this store alone.
	Path string
	// Clock stamps rows and events.
	Clock func() time.Time
	// Readers is how many reads may run at once.
	Readers int
	// CheckpointBytes is the size of the write-ahead log at which it is copied into the database
	// file.
	CheckpointBytes int64
	// Space is called when the disk is too full for some or all writes, and when it has
	// room again. It must not block.
	Space func(Space)
	// Failed is called once if all writes have to stop for good after a disk failure.
	Failed func(error)
	// Warn is called with errors of background work, which have no caller to return to.
	Warn func(error)

	// Deliver returns the webhooks that receive events of a type (default: none). Outbox is
	// called after each commit that put a delivery into the outbox. Neither may block.
	Deliver func(holdfast.EventType) []string
	Outbox  func()
	// Audited is called with the number of the newest record after each commit that
	// extended the server's audit chain (default: not called). It must not block.
	Audited func(n int64)
	// NewAuditKey is true if the audit key was replaced: then this server's first record says that the heads
	// of earlier chains were signed with a former key.
	NewAuditKey bool

	// gather is how long entries gather before the search index takes them together.
	gather time.Duration
	// noAudit turns the audit log off, for a benchmark of its cost.
	noAudit bool
}

// Store is an open database: one store for each kind of data, all in one file behind one
// writer. Safe for concurrent use.
type Store struct {
	Sessions   *Sessions
	Approvals  *Approvals
	Audit      *Audit
	Outbox     *Outbox
	Leases     *Leases
	Facts      *Facts
	Agents     *admin.Agents
	Keys       *admin.Keys
	Secrets    *admin.Secrets
	Workspaces *admin.Workspaces
	Index      *search.Index
	// Checkpoints holds the checkpoints of the sessions' files. Sessions.Commit stores new ones.
	Checkpoints *checkpoints.Store

	db *db.DB
}

// Open takes the directory's lock, opens or creates the database, brings its schema up to date and raises
// the epoch. Its errors are those of db.Open.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{}
	var err error
	s.db, err = db.Open(ctx, db.Config{
		Path: cfg.Path, Schema: schema.Of, Clock: cfg.Clock, Readers: cfg.Readers, CheckpointBytes: cfg.CheckpointBytes,
		Space: cfg.Space, Failed: cfg.Failed, Warn: cfg.Warn,
	}, func(setup *db.Setup) error {
		events := newEvents(setup)
		rows := newRows(setup, events)
		s.Index = search.New(setup, search.Config{Log: &logs{rows, events}, Gather: cfg.gather, Warn: cfg.Warn})
		s.Audit = newAudit(setup, cfg)
		s.Outbox = newOutbox(setup, cfg.Deliver, cfg.Outbox)
		s.Approvals = newApprovals(setup, rows)
		s.Checkpoints = checkpoints.New(setup)
		s.Sessions = newSessions(setup, parts{
			rows: rows, events: events, index: s.Index, approvals: s.Approvals, audit: s.Audit, outbox: s.Outbox,
			checkpoints: s.Checkpoints,
		})
		s.Leases = &Leases{setup.DB()}
		s.Facts = newFacts(setup)
		s.Agents = admin.NewAgents(setup)
		s.Keys = admin.NewKeys(setup, s.Audit)
		s.Secrets = admin.NewSecrets(setup, s.Audit)
		s.Workspaces = admin.NewWorkspaces(setup, s.Audit, s.Approvals)
		return setup.Err()
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close carries out the queued changes, copies the write-ahead log into the database file and
// releases the directory's lock. Idempotent.
func (s *Store) Close() error { return s.db.Close() }

// Epoch returns the fencing token of this server, which is higher than that of every earlier one.
func (s *Store) Epoch() uint64 { return s.db.Epoch() }

// Healthy returns nil while all writes are accepted, otherwise why some are not; see
// db.DB.Healthy.
func (s *Store) Healthy() error { return s.db.Healthy() }

// Damaged lists the damaged places found since the store was opened, at most a hundred.
func (s *Store) Damaged() []string { return s.db.Damaged() }

// Counts returns the numbers of sessions, of open turns, of pending approvals, and of sessions with entries
// that are not searchable yet. It reads only indexes.
func (s *Store) Counts(ctx context.Context) (journal.Counts, error) {
	out := journal.Counts{
		Sessions:  map[holdfast.Status]int64{},
		Turns:     map[holdfast.TurnStatus]int64{holdfast.TurnQueued: 0, holdfast.TurnRunning: 0},
		Unindexed: s.Index.Pending(),
	}
	for _, q := range []struct {
		query string
		add   func(status string, n int64)
	}{
		{
			`SELECT status, count(*) FROM sessions GROUP BY status`,
			func(status string, n int64) { out.Sessions[holdfast.Status(status)] = n },
		},
		// The partial index turns_open contains only queued and running turns.
		{
			`SELECT status, count(*) FROM turns INDEXED BY turns_open WHERE status IN ('queued', 'running') GROUP BY status`,
			func(status string, n int64) { out.Turns[holdfast.TurnStatus(status)] = n },
		},
		{
			`SELECT state, count(*) FROM approvals INDEXED BY approvals_pending WHERE state = 'pending' GROUP BY state`,
			func(_ string, n int64) { out.Approvals = n },
		},
	} {
		rows, err := s.db.Reads().QueryContext(ctx, q.query)
		err = db.Each(rows, err, func(sc db.Scanner) error {
			var status string
			var n int64
			err := sc.Scan(&status, &n)
			q.add(status, n)
			return err
		})
		if err != nil {
			return out, db.Failure("store.counts", err)
		}
	}
	return out, nil
}

// Sealed counts the sealed values, which are the secrets and the environments of sessions and workspaces, and the
// signed audit heads. Without the keys in the data directory these cannot be opened or verified.
func (s *Store) Sealed(ctx context.Context) (values, heads int64, err error) {
	row := s.db.Reads().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM sessions WHERE sealed_env IS NOT NULL) +
		(SELECT count(*) FROM workspaces WHERE sealed_env IS NOT NULL) + (SELECT count(*) FROM secrets), (SELECT count(*) FROM audit_heads)`)
	if err := row.Scan(&values, &heads); err != nil {
		return 0, 0, db.Failure("store.sealed", err)
	}
	return values, heads, nil
}

// Copy writes the database, as it is at one moment, to a new file; see db.DB.Copy.
func (s *Store) Copy(ctx context.Context, path string) error { return s.db.Copy(ctx, path) }
