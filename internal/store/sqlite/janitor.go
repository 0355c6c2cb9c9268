package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const (
	pageSize = 4096
	// walMax is at how many times the checkpoint size the log is folded in
	// completely, with the writer held for the last piece of it: a writer that
	// never pauses would otherwise never let it start over.
	walMax = 4
	// walTail is how many pages may be left for that last piece.
	walTail = 512
	// purgeEvents is how many events of a deleted session go in one transaction.
	purgeEvents = 2000
	// wipePages is how many pages one transaction of a clean-up works on.
	wipePages = 128
	// sideBusy is how long the janitor waits for a lock: it comes back later.
	sideBusy = 50 * time.Millisecond
)

// janitor does what must not happen in the path of a commit: checkpoints
// (HZ-17) and the removal of deleted logs.
type janitor struct {
	wake chan struct{} // capacity 1
	stop chan struct{}
	// pages estimates the growth of the log since the last checkpoint.
	pages atomic.Int64
	// left is how many pages of the log the last checkpoint did not copy: readers still need them.
	left atomic.Int64
	// wipe: something was purged, and its words and pages are still in the files.
	wipe bool
	// rounds is how often it has looked, for those who wait until it rests.
	rounds atomic.Int64
}

func (j *janitor) nudge() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *janitor) stopping() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

// wrote counts pages and wakes the janitor when a checkpoint is due.
func (j *janitor) wrote(pages int, limit int64) {
	if j.pages.Add(int64(pages)) >= limit/pageSize {
		j.nudge()
	}
}

// clean is the janitor goroutine. It sleeps until it is woken; while there is no space
// it looks again at intervals.
func (s *Store) clean(ctx context.Context) {
	for {
		var again <-chan time.Time
		if (s.room.short() || s.janitor.wipe) && s.room.broken.Load() == nil {
			again = time.After(s.cfg.probe)
		}
		select {
		case <-s.janitor.stop:
			return
		case <-s.janitor.wake:
		case <-again:
		}
		if s.room.broken.Load() == nil {
			s.tend(ctx)
		}
		s.janitor.rounds.Add(1)
	}
}

// tend is one round of the janitor.
func (s *Store) tend(ctx context.Context) {
	if short := s.room.short(); short || s.janitor.pages.Load() >= s.cfg.CheckpointBytes/pageSize {
		s.janitor.pages.Store(0)
		if err := s.checkpoint(ctx); err != nil && !(short && s.noSpace(err)) {
			if lost(err) {
				s.fail(readOnly(s.cfg.Path, err))
			}
			s.cfg.Warn(failure("store.checkpoint", err))
		}
		s.topUp(ctx)
	}
	if s.room.full.Load() != nil {
		if s.recover(ctx); s.room.refuses(false) != nil {
			return
		}
	}
	err := s.purge(ctx)
	if err == nil && s.janitor.wipe {
		err = s.wipeOut(ctx)
	}
	if err != nil && s.Healthy() == nil && !s.janitor.stopping() {
		s.cfg.Warn(err)
	}
}

// wipeOut removes purged data from the files: its words from the index, its pages from
// the database, and all of it from the log. Each step is a small transaction.
func (s *Store) wipeOut(ctx context.Context) error {
	for pages := -wipePages; ; pages = wipePages {
		var before, after int64
		err := s.step(ctx, func(t *tx) error {
			t.pages += wipePages
			if err := t.s.conn.QueryRowContext(t.ctx, `SELECT total_changes()`).Scan(&before); err != nil {
				return err
			}
			if _, err := t.s.conn.ExecContext(t.ctx, `INSERT INTO search (search, rank) VALUES ('merge', ?)`, pages); err != nil {
				return err
			}
			return t.s.conn.QueryRowContext(t.ctx, `SELECT total_changes()`).Scan(&after)
		})
		if err != nil {
			return err
		}
		if after-before < 2 {
			break
		}
	}
	for free := int64(1); free > 0; {
		err := s.step(ctx, func(t *tx) error {
			t.pages += wipePages
			rows, err := t.s.conn.QueryContext(t.ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, wipePages))
			if err != nil {
				return err
			}
			for rows.Next() { // each step frees a page
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				return err
			}
			was := free
			err = t.s.conn.QueryRowContext(t.ctx, `PRAGMA freelist_count`).Scan(&free)
			if free == was {
				free = 0 // an older database, which keeps its pages
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.truncateLog(ctx)
}

// step is one transaction of wipeOut.
func (s *Store) step(ctx context.Context, apply func(*tx) error) error {
	if s.janitor.stopping() {
		return errNothing
	}
	return s.do(ctx, "store.purge", &op{plan: func(*tx) error { return nil }, apply: apply})
}

// truncateLog copies the log into the database and empties it. Readers of an older
// state delay it.
func (s *Store) truncateLog(ctx context.Context) error {
	if _, _, err := s.passive(ctx); err != nil {
		return err
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	var busy, size, done int64
	if err := s.sideDB.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &size, &done); err != nil {
		return err
	}
	if busy == 0 {
		s.janitor.wipe = false
		s.topUp(ctx)
	}
	return nil
}

// checkpoint copies the log into the database file while commits go on.
func (s *Store) checkpoint(ctx context.Context) error {
	for range 4 {
		size, left, err := s.passive(ctx)
		if err != nil || size < walMax*s.cfg.CheckpointBytes/pageSize {
			return err
		}
		if left <= walTail {
			break
		}
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	_, _, err := s.passive(ctx)
	return err
}

// passive is one checkpoint that waits for nobody. It returns the pages in the
// log and those of them not copied yet.
func (s *Store) passive(ctx context.Context) (size, left int64, err error) {
	var busy, done int64
	if err := s.sideDB.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &size, &done); err != nil {
		return 0, 0, err
	}
	s.janitor.left.Store(size - done)
	return size, size - done, nil
}

// purge removes the events of deleted sessions, a little per transaction.
func (s *Store) purge(ctx context.Context) error {
	for {
		if s.janitor.stopping() {
			return nil
		}
		var number int64
		more := false
		err := s.do(ctx, "store.purge", &op{
			plan: func(t *tx) error {
				var err error
				more, err = found(t.s.w.purgeNext.QueryRowContext(t.ctx).Scan(&number))
				if err == nil && !more {
					return errNothing
				}
				return err
			},
			apply: func(t *tx) error {
				t.pages += purgeEvents / 8
				// Its words first: while there are any, the log they are from stays.
				if res, err := t.s.w.search.purge.ExecContext(t.ctx, number<<32, number<<32|journal.MaxSeq, indexDocs); err != nil {
					return err
				} else if n, err := res.RowsAffected(); err != nil || n > 0 {
					return err
				}
				res, err := t.s.w.purgeSome.ExecContext(t.ctx, number<<32, number<<32|journal.MaxSeq, purgeEvents)
				if err != nil {
					return err
				}
				if n, err := res.RowsAffected(); err != nil || n > 0 {
					return err
				}
				_, err = t.s.w.purgeDone.ExecContext(t.ctx, number)
				return err
			},
		})
		if err == nil && more {
			s.janitor.wipe = true
		}
		if err != nil || !more {
			if !more && holdfast.IsKind(err, holdfast.KindNotFound) {
				return nil
			}
			return err
		}
	}
}

// errNothing ends a purge; it never leaves this file.
var errNothing = holdfast.Errorf(holdfast.KindNotFound, "store.purge", "nothing to remove")
