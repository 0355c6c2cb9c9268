package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

// Config configures a Store. Zero values take the defaults.
type Config struct {
	// Path is the database file; its directory is created (0700), locked, and
	// must belong to this store alone.
	Path string
	// Clock stamps rows and events (default time.Now).
	Clock func() time.Time
	// Readers is how many reads may run at once (default 4).
	Readers int
	// CheckpointBytes is how large the log may grow before it is copied into the database
	// file, in the background (default 16 MiB, on a small disk an eighth of it). The same
	// amount is reserved for the log, and again for the database.
	CheckpointBytes int64
	// Space is called when the disk is too full for some or all writes, and when it has
	// room again (default: not called). It must not block.
	Space func(Space)
	// Failed is called once if the store has to stop all writes for good, because data it
	// wrote may be missing. Until the process has ended nothing more may be treated as
	// durable. It may end the process (default: reads go on).
	Failed func(error)
	// fresh: the file is empty, and this connection makes the database.
	fresh bool
	// probe is the interval between looks for space while there is none (default 1 s).
	probe time.Duration
	// busy is how long a lock of another program is waited for (default 10 s).
	busy time.Duration
	// gather is how long entries gather before they are indexed (default 100 ms).
	gather time.Duration
	// Deliver names the webhooks that are told of an event (default: none), Outbox
	// is called after each commit that had something for one. Neither may block.
	Deliver func(holdfast.EventType) []string
	Outbox  func()
	// Audited is told the newest record of the audit chain after each commit that
	// wrote one (default: nobody). It must not block.
	Audited func(n int64)
	noAudit bool // a benchmark compares with it
	// Warn hears what the store cannot return to a caller, such as a background
	// clean-up that failed (default: nobody). Called from one goroutine.
	Warn func(error)
}

// Store is an open database. Safe for concurrent use.
type Store struct {
	cfg   Config
	lock  *os.File
	epoch uint64

	// writeDB has one connection, conn, which only the writer goroutine uses;
	// sideDB one for checkpoints; readDB the pool.
	writeDB, sideDB, readDB *sql.DB
	conn                    *sql.Conn
	w                       *writeStmts
	r                       *readStmts
	cache                   *cache
	recent                  recent
	// tip is the end of the audit chain on disk; the writer goroutine moves it.
	tip atomic.Pointer[audit.Link]

	queue queue
	// gate is held while a transaction is open, and by the janitor to finish a
	// checkpoint that a busy writer would never let end.
	gate sync.Mutex
	room room
	// commitFault, set by tests before use, makes a commit fail.
	commitFault func() error

	janitor janitor
	index   *indexer
	damage  damage
	life    life
}

// life is the end of a store: closed once, after its goroutines stopped.
type life struct {
	closed  sync.Once
	stopped sync.WaitGroup
}

// Open opens or creates the database, brings its schema up to date, takes the
// directory's lock and raises the epoch.
//
// unavailable, naming the process, when another server has the directory (HZ-3);
// unavailable when the file cannot be used or is from a newer release. ctx bounds
// the opening only.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Path == "" {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "store.open", "the database path is empty")
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Readers <= 0 {
		cfg.Readers = 4
	}
	if cfg.probe <= 0 {
		cfg.probe = probeEvery
	}
	if cfg.gather <= 0 {
		cfg.gather = indexDelay
	}
	if cfg.busy <= 0 {
		cfg.busy = 10 * time.Second
	}
	if cfg.Warn == nil {
		cfg.Warn = func(error) {}
	}
	if cfg.Space == nil {
		cfg.Space = func(Space) {}
	}
	if cfg.Deliver == nil {
		cfg.Deliver = func(holdfast.EventType) []string { return nil }
	}
	if cfg.Outbox == nil {
		cfg.Outbox = func() {}
	}
	if cfg.Audited == nil {
		cfg.Audited = func(int64) {}
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, openError(cfg.Path, err)
	}
	cfg.Path = path
	s := &Store{cfg: cfg, cache: newCache(), index: newIndexer()}
	s.queue.wake = make(chan struct{}, 1)
	s.janitor.wake = make(chan struct{}, 1)
	s.janitor.stop = make(chan struct{})
	if err := s.open(ctx); err != nil {
		s.release()
		return nil, err
	}
	run := context.WithoutCancel(ctx)
	s.life.stopped.Go(func() { s.write(run) })
	s.life.stopped.Go(func() { s.clean(run) })
	s.life.stopped.Go(func() { s.follow(run) })
	s.janitor.nudge() // a deletion that a crash cut off
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	dir := filepath.Dir(s.cfg.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return openError(s.cfg.Path, err)
	}
	var err error
	if s.lock, err = lockDir(ctx, dir); err != nil {
		return err
	}
	if err := createFile(s.cfg.Path); err != nil {
		return openError(s.cfg.Path, err)
	}
	if err := s.openRoom(); err != nil {
		return err
	}
	s.lookForLog()
	info, err := os.Stat(s.cfg.Path)
	if err != nil {
		return openError(s.cfg.Path, err)
	}
	writer := s.cfg
	writer.fresh = info.Size() == 0
	side := s.cfg
	side.busy = sideBusy
	for _, p := range []struct {
		db    **sql.DB
		conns int
		dsn   string
	}{
		{&s.writeDB, 1, writer.dsn("cache_size(-4000)")},
		{&s.sideDB, 1, side.dsn("cache_size(-500)")},
		{&s.readDB, s.cfg.Readers, s.cfg.dsn("cache_size(-1000)", "query_only(1)")},
	} {
		c, err := sqlite.NewConnector(p.dsn)
		if err != nil {
			return openError(s.cfg.Path, err)
		}
		*p.db = sql.OpenDB(c)
		(*p.db).SetMaxOpenConns(p.conns)
		(*p.db).SetMaxIdleConns(p.conns)
	}
	if err := s.migrate(ctx); err != nil {
		return openError(s.cfg.Path, err)
	}
	if s.conn, err = s.writeDB.Conn(ctx); err != nil {
		return openError(s.cfg.Path, err)
	}
	row := s.conn.QueryRowContext(ctx, `UPDATE server SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch`)
	if err := row.Scan(&s.epoch); err != nil {
		return openError(s.cfg.Path, err)
	}
	if s.w, err = prepareWrites(ctx, s.conn); err != nil {
		return openError(s.cfg.Path, err)
	}
	if s.r, err = prepareReads(ctx, s.readDB); err != nil {
		return openError(s.cfg.Path, err)
	}
	if err := s.openAudit(ctx); err != nil {
		return openError(s.cfg.Path, err)
	}
	s.topUp(ctx)
	s.opened()
	return nil
}

// dsn carries every setting of a connection: a PRAGMA that is executed later
// would reach one connection of a pool only. No mmap: mapped pages count as
// ours, and a read error in a mapping is a signal instead of an error.
func (cfg Config) dsn(pragmas ...string) string {
	q := url.Values{}
	q.Set("_txlock", "immediate")
	q.Set("_dqs", "0")
	q.Set("_error_rc", "1")
	if cfg.fresh {
		// This has to come before the first table: deleted data returns its pages.
		q.Add("_pragma", "auto_vacuum(2)")
	}
	for _, p := range append([]string{
		fmt.Sprintf("busy_timeout(%d)", cfg.busy.Milliseconds()),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(1)",
		// Checkpoints have a goroutine of their own (HZ-17).
		"wal_autocheckpoint(0)",
		"journal_size_limit(67108864)",
		"temp_store(MEMORY)",
		"trusted_schema(0)",
		// Deleted data is overwritten, here and, by its own setting, in the index.
		"secure_delete(1)",
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	u := url.URL{Scheme: "file", Path: cfg.Path, RawQuery: q.Encode()}
	return u.String()
}

func (s *Store) migrate(ctx context.Context) error {
	p, err := schema.Of(s.writeDB)
	if err != nil {
		return err
	}
	// The provider's Close would close our database.
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if have > known {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open",
			"%s has schema %d, this release knows %d", s.cfg.Path, have, known).
			WithHint("use the newer release of holdfast that wrote it")
	}
	_, err = p.Up(ctx)
	return err
}

// createFile makes the database file with mode 0600 before SQLite would make it
// with a wider one; its side files take the same.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

func openError(path string, err error) error {
	var e *holdfast.Error
	if errors.As(err, &e) {
		return err
	}
	if unreadable(err) || code(err) == lib.SQLITE_NOTADB {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "%s is damaged: %w", path, err).
			WithHint("holdfast doctor --verify says what is damaged; put the data directory back from a backup")
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "cannot use %s: %w", path, err).
		WithHint("check that the directory exists, is yours and has space")
}

// Epoch is the fencing token of this server: higher than that of any before.
func (s *Store) Epoch() uint64 { return s.epoch }

// Healthy returns nil while all writes are accepted, otherwise why some are not:
// unavailable while the disk is full and after a failed write or fsync, conflict after
// another server took over.
func (s *Store) Healthy() error {
	if e := s.room.refuses(true); e != nil {
		return e
	}
	return nil
}

// Close finishes what was accepted, folds the log into the database file and
// gives the directory free. Idempotent.
func (s *Store) Close() error {
	var err error
	s.life.closed.Do(func() {
		close(s.janitor.stop)
		s.queue.close()
		s.life.stopped.Wait()
		err = s.release()
	})
	return err
}

// release closes what is open, the lock last.
func (s *Store) release() error {
	var errs []error
	s.closing()
	if s.w != nil {
		errs = append(errs, s.w.close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.readDB, s.sideDB, s.writeDB} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	errs = append(errs, s.room.close())
	if errors.Join(errs...) == nil {
		s.closedClean()
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("store.close: %w", err)
	}
	return nil
}
