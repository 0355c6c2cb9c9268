package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// PageSize is the size of the database's pages.
	PageSize = 4096
	// walMax is at how many times its normal size the log is copied completely, with the
	// writer held for the last piece: a writer that never pauses would otherwise never let
	// the log start over.
	walMax = 4
	// walTail is how many pages may be left for that last piece.
	walTail = 512
	// WipePages is how many pages one transaction of a clean-up works on.
	WipePages = 128
	// sideBusy is how long the janitor waits for a lock: it comes back later.
	sideBusy = 50 * time.Millisecond
)

// Cleaner removes deleted data behind the commits, in small transactions. Only the janitor
// calls it, in the first round after the start and after each DB.Tidy.
type Cleaner struct {
	// Purge removes the rows of what was deleted. It reports whether there were any, also
	// when it fails.
	Purge func(context.Context) (removed bool, err error)
	// Wipe removes from the pages that are in use whatever Purge left in them. It runs after
	// a Purge that removed something, again and again until it and all that follows it
	// succeeds.
	Wipe func(context.Context) error
}

// janitor is a goroutine for work that must not happen in the path of a commit: checkpoints
// (HZ-17), the search for space on a full disk, the removal of deleted data.
type janitor struct {
	writer *writer
	room   *room
	// probe is the interval between looks for space while there is none.
	probe   time.Duration
	warn    func(error)
	cleaner Cleaner
	// recovered hears that a full disk has space again.
	recovered func(context.Context)

	stop chan struct{}
	// left is how many pages of the log the last checkpoint did not copy: readers still need them.
	left int64
	// wipe: something was purged, and its pages are still in the files.
	wipe bool
	// rounds counts the rounds, for tests that wait until the janitor rests.
	rounds atomic.Int64
}

// stopping reports whether the store closes.
func (j *janitor) stopping() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

// run is the janitor goroutine. It sleeps until it is woken; while there is no space it
// looks again at intervals.
func (j *janitor) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if (j.room.short() || j.wipe) && j.room.broken.Load() == nil {
			again = time.After(j.probe)
		}
		select {
		case <-j.stop:
			return
		case <-j.room.due:
		case <-again:
		}
		if j.room.broken.Load() == nil {
			j.tend(ctx)
		}
		j.rounds.Add(1)
	}
}

// tend is one round of the janitor.
func (j *janitor) tend(ctx context.Context) {
	if short := j.room.short(); short || j.room.grown.Load() >= j.room.logBytes/PageSize {
		j.room.grown.Store(0)
		if err := j.checkpoint(ctx); err != nil && !(short && j.room.noSpace(err)) {
			if lost(err) {
				_ = j.room.fail(readOnly(j.room.path, err))
			}
			j.warn(Failure("store.checkpoint", err))
		}
		j.room.topUp(ctx)
	}
	if j.room.full.Load() != nil {
		if j.recover(ctx); j.room.refuses(false) != nil {
			return
		}
	}
	if err := j.clean(ctx); err != nil && j.room.refuses(true) == nil && !j.stopping() {
		j.warn(err)
	}
}

// recover tries to write on a disk that was full. If the disk still has no space, it tries only
// when the reserve is complete and the log can start over: else only short writes would fit.
func (j *janitor) recover(ctx context.Context) {
	held := j.room.low.Load() != nil || j.left > 0
	if j.room.scarce() && held {
		return
	}
	err := j.writer.do(ctx, "store.recover", &Op{Apply: func(t *Tx) error {
		_, err := j.writer.conn.ExecContext(t.Ctx, `UPDATE server SET epoch = epoch WHERE id = 1`)
		return err
	}})
	if err != nil {
		return // it is still full, or broken now; both are reported elsewhere
	}
	j.room.cameBack()
	if j.recovered != nil {
		j.recovered(ctx)
	}
}

// clean removes what was deleted: its rows, and then its pages from the database and from
// the log.
func (j *janitor) clean(ctx context.Context) error {
	if j.cleaner.Purge == nil {
		return nil
	}
	removed, err := j.cleaner.Purge(ctx)
	j.wipe = j.wipe || removed
	if err != nil || !j.wipe || j.stopping() {
		return err
	}
	if err := j.cleaner.Wipe(ctx); err != nil {
		return err
	}
	if err := j.vacuum(ctx); err != nil || j.stopping() {
		return err
	}
	return j.truncateLog(ctx)
}

// vacuum returns free pages to the file system, some in each transaction.
func (j *janitor) vacuum(ctx context.Context) error {
	for free := int64(1); free > 0 && !j.stopping(); {
		if e := j.room.refuses(false); e != nil {
			return e
		}
		err := j.writer.do(ctx, "store.purge", &Op{Apply: func(t *Tx) error {
			t.Pages += WipePages
			rows, err := j.writer.conn.QueryContext(t.Ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, WipePages))
			if err != nil {
				return err
			}
			for rows.Next() { // each step frees a page
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				return err
			}
			was := free
			err = j.writer.conn.QueryRowContext(t.Ctx, `PRAGMA freelist_count`).Scan(&free)
			if free == was {
				free = 0 // an older database, which keeps its pages
			}
			return err
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// truncateLog copies the log into the database and empties it. Readers of an older
// state delay it.
func (j *janitor) truncateLog(ctx context.Context) error {
	if _, _, err := j.passive(ctx); err != nil {
		return err
	}
	j.writer.gate.Lock()
	defer j.writer.gate.Unlock()
	var busy, size, done int64
	if err := j.room.side.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &size, &done); err != nil {
		return err
	}
	if busy == 0 {
		j.wipe = false
		j.room.topUp(ctx)
	}
	return nil
}

// checkpoint copies the log into the database file while commits go on.
func (j *janitor) checkpoint(ctx context.Context) error {
	for range 4 {
		size, left, err := j.passive(ctx)
		if err != nil || size < walMax*j.room.logBytes/PageSize {
			return err
		}
		if left <= walTail {
			break
		}
	}
	j.writer.gate.Lock()
	defer j.writer.gate.Unlock()
	_, _, err := j.passive(ctx)
	return err
}

// passive is one checkpoint that waits for nobody. It returns the pages in the
// log and those of them not copied yet.
func (j *janitor) passive(ctx context.Context) (size, left int64, err error) {
	var busy, done int64
	if err := j.room.side.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &size, &done); err != nil {
		return 0, 0, err
	}
	j.left = size - done
	return size, j.left, nil
}
