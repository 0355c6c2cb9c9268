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
	// probeEvery is how often a store that lacks space looks whether there is some.
	probeEvery = time.Second
	// leastSpace is how much must be free before a full store tries to write again.
	leastSpace = 1 << 20
	// shmBytes is the index of the write-ahead log that is reserved: enough for a log
	// of 64 MiB.
	shmBytes = 128 << 10
	// diskPart is which part of a disk the default log may take, so that log and
	// reserve leave room on a small one; leastLog is the least it takes.
	diskPart, leastLog = 8, 512 << 10
)

// Space is what the disk lets a store do. Err is nil when all writes are taken.
type Space struct {
	// Path is the database, Free the bytes that its disk has left; negative: unknown.
	Path string
	Free int64
	// Full: every write is refused with Err. Otherwise only new sessions and messages
	// are, and what runs is recorded in the space that is reserved.
	Full bool
	Err  error
}

// room is the space that a store has, and why it refuses writes.
//
// Log, database and index of the log have blocks reserved beyond what they use, so
// that a full disk does not keep the server from recording what already ran. The
// files stay open as long as SQLite has them: closing one earlier would drop the
// locks that SQLite holds on it.
type room struct {
	db, wal, shm *os.File
	// broken is why no more writes are taken, for good; full why none are until there
	// is space; low why nothing new is taken. nil: it is not so.
	broken, full, low atomic.Pointer[holdfast.Error]
}

// refuses is why a write is refused, nil when it is taken. admits: it brings new work.
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

// reserve takes the blocks that the next checkpoint will need, and those of a log
// that was cut. It fails when the disk has less than a quarter of them.
func (s *Store) reserve() error {
	if err := s.openSides(); err != nil {
		return err
	}
	if err := keepFrom(s.room.shm, 0, shmBytes); err != nil {
		return err
	}
	// What follows the last frame of a log is not read, so zeros may.
	if err := growTo(s.room.wal, s.cfg.CheckpointBytes); err != nil {
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

// openSides opens the log and its index, which SQLite makes, and makes again for an
// empty database.
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

// topUp refreshes the reserve and says when there is none, or one again.
func (s *Store) topUp() {
	err := s.reserve()
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		err = nil // no reserve, and no full disk
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

// broke turns the failure of a write into its answer. A full disk stops all writes
// until there is space; what may have lost a page stops them for good.
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

// noSpace reports whether err says that the disk is full: nothing of the transaction
// counts, and what was acknowledged is not touched. The index of the log, which
// SQLite lets grow in a way of its own, meets the end as an I/O error.
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

// recover tries to write on a disk that was full.
func (s *Store) recover(ctx context.Context) {
	if free, total := diskSpace(s.cfg.Path); total > 0 && free < leastSpace && s.room.low.Load() != nil {
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
		return // it stays full, or is broken now; either is said
	}
	s.room.full.Store(nil)
	if e := s.room.low.Load(); e != nil {
		s.told(e, false)
	} else {
		s.told(nil, false)
	}
	// Entries that could not be indexed meanwhile.
	if err := s.unindexed(ctx); err != nil && !s.janitor.stopping() {
		s.cfg.Warn(err)
	}
}
