package db

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast"
)

const (
	// probeEvery is how often a store that lacks space looks for it.
	probeEvery = time.Second
	// leastSpace is how much space must be free before a full store tries to write again.
	leastSpace = 1 << 20
	// shmBytes is the space reserved for the index of the write-ahead log: enough for a
	// log of 64 MiB.
	shmBytes = 128 << 10
	// diskPart limits the default log to one part in diskPart of the disk, so that log and
	// reserve leave room on a small one; leastLog is its minimum.
	diskPart, leastLog = 8, 512 << 10
	// defaultLog is the default of Config.CheckpointBytes on a large disk.
	defaultLog = 16 << 20
)

// Space reports which writes the disk has room for. Err is nil while all writes are
// accepted.
type Space struct {
	// Path is the database, Free the free bytes of its disk; negative if unknown.
	Path string
	Free int64
	// Full: every write is refused with Err. If Err is set without Full, only new sessions and
	// messages are refused, and running work is recorded in the reserved space.
	Full bool
	Err  error
}

// room is the space that a store has, and why it refuses writes.
//
// Log, database and index of the log have blocks reserved beyond their present size, so
// that the server can record work that already ran even on a full disk. The files stay
// open as long as SQLite has them: closing one earlier would drop the locks that SQLite
// holds on it.
type room struct {
	path string
	// logBytes is how large the write-ahead log may grow before it is copied into the
	// database. The same is reserved for the log, and again for the database.
	logBytes int64
	// side is the connection for checkpoints.
	side *sql.DB
	// space hears of changes, failed of the end of all writes.
	space  func(Space)
	failed func(error)

	db, wal, shm *os.File
	// broken is why all writes are refused for good; full why all are refused until there
	// is space; low why new work is refused. Each is nil while it does not apply.
	broken, full, low atomic.Pointer[holdfast.Error]

	// grown estimates by how many pages the log grew since the last checkpoint.
	grown atomic.Int64
	// due, of capacity 1, asks the janitor to look.
	due chan struct{}
}

// refuses returns why a write is refused, nil if it is accepted. admits tells whether it
// brings new work.
func (r *room) refuses(admits bool) *holdfast.Error {
	if e := r.broken.Load(); e != nil {
		return e
	}
	if e := r.full.Load(); e != nil || !admits {
		return e
	}
	return r.low.Load()
}

// short reports whether the janitor has to look for space.
func (r *room) short() bool { return r.full.Load() != nil || r.low.Load() != nil }

// wrote counts pages that went into the log and asks for a checkpoint when one is due.
func (r *room) wrote(pages int) {
	if r.grown.Add(int64(pages)) >= r.logBytes/PageSize {
		poke(r.due)
	}
}

// open opens the database file before SQLite does, and chooses logBytes if it is not set.
func (r *room) open() (err error) {
	if r.db, err = os.OpenFile(r.path, os.O_RDWR, 0); err != nil {
		return OpenError(r.path, err)
	}
	if r.logBytes <= 0 {
		r.logBytes = defaultLog
		if _, total := diskSpace(r.path); total > 0 {
			r.logBytes = min(r.logBytes, max(total/diskPart, leastLog))
		}
	}
	return nil
}

// close closes the files. SQLite must have closed them before.
func (r *room) close() error {
	var errs []error
	for _, f := range []*os.File{r.shm, r.wal, r.db} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// reserve allocates the blocks that the next checkpoint will need, and those of a log
// that was truncated. It fails if the disk has less than a quarter of them.
func (r *room) reserve(ctx context.Context) error {
	if err := r.openSides(); err != nil {
		return err
	}
	if err := keepFrom(r.shm, 0, shmBytes); err != nil {
		return err
	}
	if err := r.fillLog(ctx); err != nil {
		return err
	}
	info, err := r.db.Stat()
	if err != nil {
		return err
	}
	for want := r.logBytes; ; want /= 2 {
		if err = keepFrom(r.db, info.Size(), want); err == nil || want <= r.logBytes/4 {
			return err
		}
	}
}

// fillLog appends zeros to the log until it has the size at which it is checkpointed.
// SQLite does not read past the last frame, so zeros may follow it. They make commits
// faster: an fsync of blocks that were never written also waits for the file system's
// journal. While fillLog writes it holds SQLite's write lock, so that no other connection
// appends a frame. If it does not get the lock it only reserves the disk space.
func (r *room) fillLog(ctx context.Context) error {
	info, err := r.wal.Stat()
	if err != nil || info.Size() >= r.logBytes {
		return err
	}
	if err := keepFrom(r.wal, info.Size(), r.logBytes-info.Size()); err != nil {
		return err
	}
	tx, err := r.side.BeginTx(ctx, nil)
	if err != nil {
		return nil
	}
	defer func() { _ = tx.Rollback() }()
	if info, err = r.wal.Stat(); err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	at := info.Size()
	for at < r.logBytes {
		n, err := r.wal.WriteAt(zeros[:min(r.logBytes-at, int64(len(zeros)))], at)
		if at += int64(n); err != nil {
			return err
		}
	}
	startSync(r.wal, info.Size(), at-info.Size())
	return nil
}

// openSides opens the log and its index. SQLite makes these files, and makes them again
// for an empty database.
func (r *room) openSides() (err error) {
	if r.wal == nil {
		if r.wal, err = os.OpenFile(r.path+"-wal", os.O_RDWR, 0); err != nil {
			return err
		}
	}
	if r.shm == nil {
		r.shm, err = os.OpenFile(r.path+"-shm", os.O_RDWR, 0)
	}
	return err
}

// topUp refreshes the reserve and reports when it is lost and when it is back.
func (r *room) topUp(ctx context.Context) {
	err := r.reserve(ctx)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		err = nil // there is no reserve, but the disk is not full
	}
	switch was := r.low.Load(); {
	case err == nil && was != nil:
		r.low.Store(nil)
		if r.full.Load() == nil {
			r.report(nil, false)
		}
	case err != nil && was == nil:
		free, _ := diskSpace(r.path)
		e := holdfast.Errorf(holdfast.KindUnavailable, "store.commit",
			"the disk of %s is full (%d bytes free): new sessions and messages are refused, running work is still recorded: %w",
			r.path, free, err).
			WithHint("free %d MiB on the disk of %s: writes come back by themselves", max(r.logBytes>>20, 1), r.path)
		r.low.Store(e)
		if r.full.Load() == nil {
			r.report(e, false)
		}
	}
}

// report calls space with the state of the disk.
func (r *room) report(err *holdfast.Error, full bool) {
	free, _ := diskSpace(r.path)
	sp := Space{Path: r.path, Free: free, Full: full}
	if err != nil {
		sp.Err = err
	}
	r.space(sp)
}

// ranOut stops all writes because the disk is full, and returns the error for them.
func (r *room) ranOut(err error) error {
	free, _ := diskSpace(r.path)
	e := holdfast.Errorf(holdfast.KindUnavailable, "store.commit",
		"the disk of %s is full (%d bytes free), the store is read-only until there is space: %w", r.path, free, err).
		WithHint("free space on the disk of %s: writes come back by themselves", r.path)
	if r.full.CompareAndSwap(nil, e) {
		r.report(e, true)
		poke(r.due)
	}
	if now := r.refuses(false); now != nil {
		return now
	}
	return e
}

// cameBack accepts writes again after the disk was full.
func (r *room) cameBack() {
	r.full.Store(nil)
	r.report(r.low.Load(), false)
}

// fail stops all writes for good and returns the error for them.
func (r *room) fail(e *holdfast.Error) error {
	if r.broken.CompareAndSwap(nil, e) && r.failed != nil {
		r.failed(e)
	}
	return r.broken.Load()
}

// noSpace reports whether err says that the disk is full: the transaction is undone,
// and acknowledged data is untouched. SQLite lets the index of the log grow in its own
// way and reports a full disk there as an I/O error.
func (r *room) noSpace(err error) bool {
	switch extended(err) {
	case lib.SQLITE_FULL:
		return true
	case lib.SQLITE_IOERR_SHMSIZE, lib.SQLITE_IOERR_SHMMAP:
		return r.scarce()
	}
	return false
}

// scarce reports whether the disk has too little space to try a write.
func (r *room) scarce() bool {
	free, total := diskSpace(r.path)
	return total > 0 && free < leastSpace
}
