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
	// probeEvery is the default time between two checks for free space while the disk is full.
	probeEvery = time.Second
	// leastSpace is the number of free bytes below which the disk counts as too full to try a write after the
	// disk was full.
	leastSpace = 1 << 20
	// shmBytes is the space reserved for the index of the write-ahead log: enough for a
	// log of 64 MiB.
	shmBytes = 128 << 10
	// diskPart limits the default size of the write-ahead log to 1/diskPart of the disk, so that the log and
	// the reserved blocks leave room on a small disk. leastLog is the smallest default size.
	diskPart, leastLog = 8, 512 << 10
	// defaultLog is the default of Config.CheckpointBytes on a large disk.
	defaultLog = 16 << 20
)

// Space reports which writes the disk has room for. Err is nil while all writes are
// accepted.
type Space struct {
	// Path is the database file. Free is the number of free bytes on its disk, negative if unknown.
	Path string
	Free int64
	// Full is true while every write is refused with Err. If Err is set without Full, only new
	// sessions and messages are refused, and running work is recorded in the reserved space.
	Full bool
	Err  error
}

// room manages the disk space of the database: it reserves blocks, and decides which writes are
// refused and why.
//
// The log, the database and the log's index have blocks reserved beyond their present size, so
// that the server can record work that already ran even on a full disk. The files stay
// open as long as SQLite has them: closing one earlier would drop the locks that SQLite
// holds on it.
type room struct {
	path string
	// logBytes is the size of the write-ahead log at which it is copied into the database. As
	// much disk space is reserved for the log, and again for the database.
	logBytes int64
	// side is the connection for checkpoints.
	side *sql.DB
	// space is called when the disk gets too full for some or all writes, and when it has room for them again;
	// failed is called once, when written data may be lost and all writes are refused for good. failed may be nil.
	space  func(Space)
	failed func(error)

	db, wal, shm *os.File
	// Each of these is an error, with which writes are refused, or nil: broken refuses all writes for good,
	// full refuses all writes until the disk has space, and low refuses only new work.
	broken, full, low atomic.Pointer[holdfast.Error]

	// grown estimates how many pages were written to the log since the last checkpoint.
	grown atomic.Int64
	// due has capacity 1; a signal in it makes the janitor run a round.
	due chan struct{}
}

// refuses returns the error for a write that must be refused now, nil if it is accepted. admits
// is true for a write that brings new work.
func (r *room) refuses(admits bool) *holdfast.Error {
	if e := r.broken.Load(); e != nil {
		return e
	}
	if e := r.full.Load(); e != nil || !admits {
		return e
	}
	return r.low.Load()
}

// short reports whether the disk lacks space, so that the janitor has to check it again.
func (r *room) short() bool { return r.full.Load() != nil || r.low.Load() != nil }

// wrote adds to the number of pages written to the log, and wakes the janitor when a checkpoint
// is due.
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

// reserve allocates disk blocks for the full size of the log and its index, and for the next
// checkpoint into the database. For the database it accepts half or a quarter of logBytes if the disk has no
// more.
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
// SQLite does not read past the last frame, so zeros may follow that. The zeros make commits
// faster: an fsync of blocks that were never written also waits for the file system's
// journal. While fillLog writes it holds SQLite's write lock, so that no other connection
// appends a frame. If fillLog does not get the lock it only reserves the disk space.
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

// openSides opens the files of the write-ahead log and its index, unless they are open. SQLite
// creates these files.
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

// topUp renews the reserved blocks. When they no longer fit on the disk it refuses new work and
// reports that; when they fit again it accepts new work and reports that too.
func (r *room) topUp(ctx context.Context) {
	err := r.reserve(ctx)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		err = nil // reserve failed, but not because the disk is full
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
			WithHint("free %d MiB on the disk of %s: the server then accepts work again by itself", max(r.logBytes>>20, 1), r.path)
		r.low.Store(e)
		if r.full.Load() == nil {
			r.report(e, false)
		}
	}
}

// report calls r.space with the free bytes of the disk and with err, the error of refused writes.
func (r *room) report(err *holdfast.Error, full bool) {
	free, _ := diskSpace(r.path)
	sp := Space{Path: r.path, Free: free, Full: full}
	if err != nil {
		sp.Err = err
	}
	r.space(sp)
}

// ranOut refuses all writes until a full disk has space again. It returns the error for them.
func (r *room) ranOut(err error) error {
	free, _ := diskSpace(r.path)
	e := holdfast.Errorf(holdfast.KindUnavailable, "store.commit",
		"the disk of %s is full (%d bytes free), the database is read-only until there is space: %w", r.path, free, err).
		WithHint("free space on the disk of %s: the server then writes again by itself", r.path)
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

// fail refuses all writes for good and returns the error for them, that of the first call.
func (r *room) fail(e *holdfast.Error) error {
	if r.broken.CompareAndSwap(nil, e) && r.failed != nil {
		r.failed(e)
	}
	return r.broken.Load()
}

// noSpace reports whether err means that the disk is full. Then the transaction is rolled back,
// and acknowledged data is untouched. When the log's index cannot grow on a full disk, SQLite
// reports an I/O error instead; then noSpace checks the free space itself.
func (r *room) noSpace(err error) bool {
	switch extended(err) {
	case lib.SQLITE_FULL:
		return true
	case lib.SQLITE_IOERR_SHMSIZE, lib.SQLITE_IOERR_SHMMAP:
		return r.scarce()
	}
	return false
}

// scarce reports whether the disk has fewer than leastSpace free bytes.
func (r *room) scarce() bool {
	free, total := diskSpace(r.path)
	return total > 0 && free < leastSpace
}
