package sqlite

import (
	"context"
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
	db, wal, shm *os.File
	// broken is why all writes are refused for good; full why all are refused until there
	// is space; low why new work is refused. Each is nil while it does not apply.
	broken, full, low atomic.Pointer[holdfast.Error]
}

// refuses returns why a write is refused, nil if it is accepted. admits: it brings new
// work.
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

func (r *room) close() error {
	var errs []error
	for _, f := range []*os.File{r.shm, r.wal, r.db} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// openRoom opens the database before SQLite does.
func (s *Store) openRoom() (err error) {
	if s.room.db, err = os.OpenFile(s.cfg.Path, os.O_RDWR, 0); err != nil {
		return openError(s.cfg.Path, err)
	}
	if s.cfg.CheckpointBytes <= 0 {
		s.cfg.CheckpointBytes = 16 << 20
		if _, total := diskSpace(s.cfg.Path); total > 0 {
			s.cfg.CheckpointBytes = min(s.cfg.CheckpointBytes, max(total/diskPart, leastLog))
		}
	}
	return nil
}

// reserve allocates the blocks that the next checkpoint will need, and those of a log
// that was truncated. It fails if the disk has less than a quarter of them.
func (s *Store) reserve(ctx context.Context) error {
	if err := s.openSides(); err != nil {
		return err
	}
	if err := keepFrom(s.room.shm, 0, shmBytes); err != nil {
		return err
	}
	if err := s.fillLog(ctx); err != nil {
		return err
	}
	info, err := s.room.db.Stat()
	if err != nil {
		return err
	}
	for want := s.cfg.CheckpointBytes; ; want /= 2 {
		if err = keepFrom(s.room.db, info.Size(), want); err == nil || want <= s.cfg.CheckpointBytes/4 {
			return err
		}
	}
}

// fillLog appends zeros to the log until it has the size at which it is checkpointed.
// SQLite does not read past the last frame, so zeros may follow it. They make commits
// faster: an fsync of blocks that were never written also waits for the file system's
// journal. While fillLog writes it holds SQLite's write lock, so that no other connection
// appends a frame. If it does not get the lock it only reserves the disk space.
func (s *Store) fillLog(ctx context.Context) error {
	info, err := s.room.wal.Stat()
	if err != nil || info.Size() >= s.cfg.CheckpointBytes {
		return err
	}
	if err := keepFrom(s.room.wal, info.Size(), s.cfg.CheckpointBytes-info.Size()); err != nil {
		return err
	}
	tx, err := s.sideDB.BeginTx(ctx, nil)
	if err != nil {
		return nil
	}
	defer func() { _ = tx.Rollback() }()
	if info, err = s.room.wal.Stat(); err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	at := info.Size()
	for at < s.cfg.CheckpointBytes {
		n, err := s.room.wal.WriteAt(zeros[:min(s.cfg.CheckpointBytes-at, int64(len(zeros)))], at)
		if at += int64(n); err != nil {
			return err
		}
	}
	startSync(s.room.wal, info.Size(), at-info.Size())
	return nil
}

// openSides opens the log and its index. SQLite makes these files, and makes them again
// for an empty database.
func (s *Store) openSides() (err error) {
	if s.room.wal == nil {
		if s.room.wal, err = os.OpenFile(s.cfg.Path+"-wal", os.O_RDWR, 0); err != nil {
			return err
		}
	}
	if s.room.shm == nil {
		s.room.shm, err = os.OpenFile(s.cfg.Path+"-shm", os.O_RDWR, 0)
	}
	return err
}

// topUp refreshes the reserve and reports when it is lost and when it is back.
func (s *Store) topUp(ctx context.Context) {
	err := s.reserve(ctx)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		err = nil // there is no reserve, but the disk is not full
	}
	switch was := s.room.low.Load(); {
	case err == nil && was != nil:
		s.room.low.Store(nil)
		if s.room.full.Load() == nil {
			s.told(nil, false)
		}
	case err != nil && was == nil:
		free, _ := diskSpace(s.cfg.Path)
		e := holdfast.Errorf(holdfast.KindUnavailable, "store.commit",
			"the disk of %s is full (%d bytes free): new sessions and messages are refused, what runs is still recorded: %w", s.cfg.Path, free, err).
			WithHint("free %d MiB on the disk of %s: writes come back by themselves", max(s.cfg.CheckpointBytes>>20, 1), s.cfg.Path)
		s.room.low.Store(e)
		if s.room.full.Load() == nil {
			s.told(e, false)
		}
	}
}

func (s *Store) told(err *holdfast.Error, full bool) {
	free, _ := diskSpace(s.cfg.Path)
	sp := Space{Path: s.cfg.Path, Free: free, Full: full}
	if err != nil {
		sp.Err = err
	}
	s.cfg.Space(sp)
}

// broke turns a failed write into the error to return. A full disk stops all writes
// until there is space; a failure that may have lost a page stops them for good.
func (s *Store) broke(err error) error {
	switch {
	case s.noSpace(err):
		free, _ := diskSpace(s.cfg.Path)
		e := holdfast.Errorf(holdfast.KindUnavailable, "store.commit",
			"the disk of %s is full (%d bytes free), the store is read-only until there is space: %w", s.cfg.Path, free, err).
			WithHint("free space on the disk of %s: writes come back by themselves", s.cfg.Path)
		if s.room.full.CompareAndSwap(nil, e) {
			s.told(e, true)
			s.janitor.nudge()
		}
		if r := s.room.refuses(false); r != nil {
			return r
		}
		return e
	case lost(err):
		s.fail(readOnly(s.cfg.Path, err))
		return s.room.broken.Load()
	}
	if unreadable(err) {
		s.damaged("a page that a change needed")
	}
	return failure("store.commit", err)
}

// fail stops all writes for good.
func (s *Store) fail(e *holdfast.Error) {
	if s.room.broken.CompareAndSwap(nil, e) && s.cfg.Failed != nil {
		s.cfg.Failed(e)
	}
}

// noSpace reports whether err says that the disk is full: the transaction is undone,
// and acknowledged data is untouched. SQLite lets the index of the log grow in its own
// way and reports a full disk there as an I/O error.
func (s *Store) noSpace(err error) bool {
	switch extended(err) {
	case lib.SQLITE_FULL:
		return true
	case lib.SQLITE_IOERR_SHMSIZE, lib.SQLITE_IOERR_SHMMAP:
		free, total := diskSpace(s.cfg.Path)
		return total > 0 && free < leastSpace
	}
	return false
}

// recover tries to write on a disk that was full. If the disk still has no space, it tries only
// when the reserve is complete and the log can start over: else only short writes would fit.
func (s *Store) recover(ctx context.Context) {
	held := s.room.low.Load() != nil || s.janitor.left.Load() > 0
	if free, total := diskSpace(s.cfg.Path); total > 0 && free < leastSpace && held {
		return
	}
	err := s.put(ctx, "store.recover", &op{
		plan: func(*tx) error { return nil },
		apply: func(t *tx) error {
			_, err := t.s.conn.ExecContext(t.ctx, `UPDATE server SET epoch = epoch WHERE id = 1`)
			return err
		},
	})
	if err != nil {
		return // it is still full, or broken now; both are reported elsewhere
	}
	s.room.full.Store(nil)
	s.told(s.room.low.Load(), false)
	// Index the entries that could not be indexed meanwhile.
	if err := s.unindexed(ctx); err != nil && !s.janitor.stopping() {
		s.cfg.Warn(err)
	}
}
