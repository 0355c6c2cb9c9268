package db

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
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/wal"
)

// Config configures a DB. Zero values of the fields from Clock on take the defaults.
type Config struct {
	// Path is the database file. Open creates its directory (0700) and locks it; the
	// directory must belong to this database alone.
	Path string
	// Schema returns the migrations that bring the schema up to date, which also create the
	// table server.
	Schema func(*sql.DB) (*goose.Provider, error)
	// Clock stamps transactions (default time.Now).
	Clock func() time.Time
	// Readers is how many reads may run at once (default 4).
	Readers int
	// CheckpointBytes is the size of the write-ahead log at which it is copied into the database
	// file, in the background (default 16 MiB, but at most an eighth of the disk). As much
	// disk space is reserved for the log, and again for the database.
	CheckpointBytes int64
	// Space is called when the disk is too full for some or all writes, and when it has
	// room again (default: not called). It must not block.
	Space func(Space)
	// Failed is called once if all writes stop for good, because data that was written may be
	// missing. From then on nothing may be treated as durable. Failed may end the process
	// (default: the database stays open for reads).
	Failed func(error)
	// Warn is called with errors that have no caller, such as a background clean-up that
	// failed (default: not called).
	Warn func(error)

	// fresh is true for the connection that creates the tables in a new, empty database file.
	fresh bool
	// probe is the time between two checks for free space while the disk is full (default 1 s).
	probe time.Duration
	// busy is how long a statement waits for a lock that another program holds (default 10 s).
	busy time.Duration
}

func (cfg *Config) defaults() {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Readers <= 0 {
		cfg.Readers = 4
	}
	if cfg.Warn == nil {
		cfg.Warn = func(error) {}
	}
	if cfg.Space == nil {
		cfg.Space = func(Space) {}
	}
	if cfg.probe <= 0 {
		cfg.probe = probeEvery
	}
	if cfg.busy <= 0 {
		cfg.busy = 10 * time.Second
	}
}

// DB is an open database. Safe for concurrent use.
type DB struct {
	cfg  Config
	lock *os.File
	// writeDB has one connection, which only the writer uses; sideDB has one connection, for
	// checkpoints; readDB is the pool of read-only connections.
	writeDB, sideDB, readDB *sql.DB

	writer  writer
	room    room
	janitor janitor
	damage  damage

	closed  sync.Once
	running sync.WaitGroup
}

// Open takes the lock of the directory, opens or creates the database and brings its schema up to
// date. Then it calls stores, which declares the statements and hooks of the stores in the Setup,
// raises the epoch and starts to accept writes.
//
// It returns unavailable, with the process id, if another server has locked the directory
// (HZ-3), and unavailable if the file cannot be used or is from a newer release. ctx limits only
// the opening.
func Open(ctx context.Context, cfg Config, stores func(*Setup) error) (*DB, error) {
	if cfg.Path == "" {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "store.open", "the database path is empty")
	}
	cfg.defaults()
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, OpenError(cfg.Path, err)
	}
	cfg.Path = path
	d := &DB{cfg: cfg}
	d.damage = damage{path: path, warn: cfg.Warn}
	d.room.path, d.room.logBytes, d.room.due = path, cfg.CheckpointBytes, make(chan struct{}, 1)
	d.room.space, d.room.failed = cfg.Space, cfg.Failed
	d.writer.path, d.writer.clock, d.writer.room, d.writer.damage = path, cfg.Clock, &d.room, &d.damage
	d.writer.queue.wake = make(chan struct{}, 1)
	d.janitor.writer, d.janitor.room, d.janitor.probe, d.janitor.warn = &d.writer, &d.room, cfg.probe, cfg.Warn
	d.janitor.stop = make(chan struct{})
	runs, err := d.open(ctx, stores)
	if err != nil {
		_ = d.release()
		return nil, OpenError(path, err)
	}
	for _, run := range append(runs, d.writer.run, d.janitor.run) {
		background := context.WithoutCancel(ctx)
		d.running.Go(func() { run(background) })
	}
	d.Tidy() // needed if a crash has interrupted the removal of deleted data
	return d, nil
}

// open does all that Open does, except that it starts no goroutines. It returns the functions that the stores
// want to run in goroutines.
func (d *DB) open(ctx context.Context, stores func(*Setup) error) (runs []func(context.Context), err error) {
	path := d.cfg.Path
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if d.lock, err = lockDir(ctx, filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	if err := d.room.open(); err != nil {
		return nil, err
	}
	if lost := LostLog(path); lost != "" { // check this before SQLite makes a new write-ahead log
		d.damage.add(lost)
	}
	if err := d.connect(); err != nil {
		return nil, err
	}
	if err := d.migrate(ctx); err != nil {
		return nil, err
	}
	if d.writer.conn, err = d.writeDB.Conn(ctx); err != nil {
		return nil, err
	}
	s := &Setup{db: d, ctx: ctx}
	s.Write(&d.writer.begin, `BEGIN IMMEDIATE`)
	s.Write(&d.writer.commit, `COMMIT`)
	s.Write(&d.writer.rollback, `ROLLBACK`)
	s.Write(&d.writer.server, `SELECT epoch FROM server WHERE id = 1`)
	s.Write(&d.writer.bound, `UPDATE server SET commits = ? WHERE id = 1`)
	s.Write(&d.writer.foreign, `PRAGMA data_version`)
	if err := errors.Join(stores(s), s.err); err != nil {
		return nil, err
	}
	if err := d.writer.start(ctx); err != nil {
		return nil, err
	}
	d.room.topUp(ctx)
	if err := setMark(path); err != nil { // fails if the disk has no room for the mark
		d.cfg.Warn(Failure("store.open", err))
	}
	return s.runs, nil
}

// connect opens the pools of connections.
func (d *DB) connect() error {
	info, err := os.Stat(d.cfg.Path)
	if err != nil {
		return err
	}
	if err := wal.Register(); err != nil {
		return err
	}
	writer, side := d.cfg, d.cfg
	writer.fresh = info.Size() == 0
	side.busy = sideBusy
	for _, p := range []struct {
		db    **sql.DB
		conns int
		dsn   string
	}{
		{&d.writeDB, 1, writer.dsn("cache_size(-4000)") + "&vfs=" + wal.Name},
		{&d.sideDB, 1, side.dsn("cache_size(-500)")},
		{&d.readDB, d.cfg.Readers, d.cfg.dsn("cache_size(-1000)", "query_only(1)")},
	} {
		c, err := sqlite.NewConnector(p.dsn)
		if err != nil {
			return err
		}
		*p.db = sql.OpenDB(c)
		(*p.db).SetMaxOpenConns(p.conns)
		(*p.db).SetMaxIdleConns(p.conns)
	}
	d.room.side = d.sideDB
	return nil
}

// dsn returns the data source name with every setting of a connection: a PRAGMA that is executed
// later would reach only one connection of a pool. mmap stays off: mapped pages are charged to
// our memory, and a read error in a mapping is a signal instead of an error.
func (cfg Config) dsn(pragmas ...string) string {
	q := url.Values{}
	q.Set("_txlock", "immediate")
	q.Set("_dqs", "0")
	q.Set("_error_rc", "1")
	if cfg.fresh {
		// auto_vacuum lets SQLite give pages of deleted data back to the disk; it must be set before the first table.
		q.Add("_pragma", "auto_vacuum(2)")
	}
	for _, p := range append([]string{
		fmt.Sprintf("busy_timeout(%d)", cfg.busy.Milliseconds()),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(1)",
		// The janitor goroutine makes the checkpoints (HZ-17).
		"wal_autocheckpoint(0)",
		"journal_size_limit(67108864)",
		"temp_store(MEMORY)",
		"trusted_schema(0)",
		// Overwrite deleted data with zeros. The search index has its own setting for that.
		"secure_delete(1)",
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	u := url.URL{Scheme: "file", Path: cfg.Path, RawQuery: q.Encode()}
	return u.String()
}

func (d *DB) migrate(ctx context.Context) error {
	p, err := d.cfg.Schema(d.writeDB)
	if err != nil {
		return err
	}
	// Do not close the migration provider p: its Close would close our database.
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if have > known {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open",
			"the database %s has schema version %d, but this release supports at most version %d", d.cfg.Path, have, known).
			WithHint("use the newer release of holdfast that wrote the database")
	}
	if have > 0 && have < known {
		if err := keepBefore(ctx, d.sideDB, d.cfg.Path, have); err != nil {
			return err
		}
	}
	_, err = p.Up(ctx)
	return err
}

// createFile creates the database file with mode 0600, because SQLite would create it with a
// wider mode. SQLite gives its log and the log's index the mode of the database file.
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

// OpenError turns an error of opening path into the *holdfast.Error that a caller gets. A
// *holdfast.Error is returned as it is.
func OpenError(path string, err error) error {
	var e *holdfast.Error
	if errors.As(err, &e) {
		return err
	}
	if Unreadable(err) || code(err) == lib.SQLITE_NOTADB {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "the database %s is damaged: %w", path, err).
			WithHint("holdfast doctor --verify lists all damage; put the data directory back from a backup")
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "store.open", "cannot use the database %s: %w", path, err).
		WithHint("check that the directory exists, belongs to the server's user and has free space")
}

// Close carries out the queued Ops, waits for all goroutines, copies the write-ahead log into the
// database file and releases the directory's lock. Idempotent.
func (d *DB) Close() error {
	var err error
	d.closed.Do(func() {
		close(d.janitor.stop)
		d.writer.queue.close()
		d.running.Wait()
		err = d.release()
	})
	return err
}

// release closes statements, connections and files, and the lock last.
func (d *DB) release() error {
	var errs []error
	if d.writeDB != nil {
		if err := shutMark(d.cfg.Path); err != nil {
			d.cfg.Warn(Failure("store.close", err))
		}
	}
	errs = append(errs, d.writer.close())
	for _, db := range []*sql.DB{d.readDB, d.sideDB, d.writeDB} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	errs = append(errs, d.room.close())
	if errors.Join(errs...) == nil {
		removeMark(d.cfg.Path)
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the database was not closed without errors: %w", err)
	}
	return nil
}
