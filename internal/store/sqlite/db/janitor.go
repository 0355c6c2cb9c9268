package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// PageSize is the size of the database's pages, in bytes.
	PageSize = 4096
	// walMax: when the write-ahead log has this many times its normal size, it is copied to its end while the writer
	// pauses for the last pages. Otherwise, under a writer that never pauses, the log could never start over.
	walMax = 4
	// walTail: if the log has walMax times its normal size, the writer has to pause for the rest of the copying once
	// at most this many pages are left, or after four tries.
	walTail = 512
	// WipePages is about how many pages one clean-up transaction frees or rewrites at most.
	WipePages = 128
	// sideBusy is how long the janitor waits for a lock of SQLite. It is short because the janitor tries
	// again later.
	sideBusy = 50 * time.Millisecond
)

// Cleaner removes deleted data in the background, in small transactions. Only the janitor calls it, in each round: after
// the start, after DB.Tidy, when a checkpoint of the log is due, every hour, and more often until a Wipe succeeds.
type Cleaner struct {
	// Purge removes the rows of deleted data. removed reports whether it removed any, also
	// when it returns an error.
	Purge func(context.Context) (removed bool, err error)
	// Wipe removes remnants of the purged data from pages that are still in use. It runs after
	// a Purge that removed something, again in each round until it, the vacuum and the
	// truncation of the write-ahead log have all succeeded.
	Wipe func(context.Context) error
}

// janitor is a goroutine for work that must not delay a commit: it makes checkpoints (HZ-17),
// retries writes on a full disk and removes deleted data.
type janitor struct {
	writer *writer
	room   *room
	// probe is how long the janitor waits between two checks for free space while the disk is full.
	probe   time.Duration
	warn    func(error)
	cleaner Cleaner
	// recovered is called each time a full disk has space again; it may be nil.
	recovered func(context.Context)

	stop chan struct{}
	// left is how many pages of the write-ahead log the last checkpoint could not copy because of readers
	// that still use an older state of the database.
	left int64
	// wipe is true while purged data may still be in pages of the database or of the log.
	wipe bool
	// rounds counts the finished rounds, for tests that wait until the janitor has run.
	rounds atomic.Int64
}

// stopping reports whether the database has begun to close.
func (j *janitor) stopping() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

// run is the janitor goroutine. It sleeps until room.due wakes it, or an hour; while the disk lacks
// space or a wipe is unfinished it also runs a round every j.probe.
func (j *janitor) run(ctx context.Context) {
	expire := time.NewTicker(time.Hour)
	defer expire.Stop()
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
		case <-expire.C:
		}
		if j.room.broken.Load() == nil {
			j.tend(ctx)
		}
		j.rounds.Add(1)
	}
}

// tend does one round of the janitor's work: a checkpoint if one is due, a trial write if the disk was full, and
// the removal of deleted data and of old copies of the database from before migrations.
func (j *janitor) tend(ctx context.Context) {
	if short := j.room.short(); short || j.room.grown.Load() >= j.room.logBytes/PageSize {
		j.room.grown.Store(0)
		if err := j.checkpoint(ctx); err != nil && !(short && j.room.noSpace(err)) {
			j.warn(err)
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
	if err := dropCopies(j.room.path, j.writer.clock().Add(-beforeFor)); err != nil {
		j.warn(Failure("store.copy", err))
	}
}

// recover tries a write on a disk that was full, and accepts writes again if it succeeds. While the disk has
// too little free space, it tries only if the reserved blocks are complete and the log can start over:
// otherwise the trial write could succeed although larger writes do not fit.
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
		return // the disk is still full, or all writes are refused for good; other code reports both
	}
	j.room.cameBack()
	if j.recovered != nil {
		j.recovered(ctx)
	}
}

// clean removes deleted data: its rows, then its remnants in the pages of the database and in
// the write-ahead log.
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
			for rows.Next() { // each row that the statement returns means that it freed a page
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				return err
			}
			was := free
			err = j.writer.conn.QueryRowContext(t.Ctx, `PRAGMA freelist_count`).Scan(&free)
			if free == was {
				free = 0 // nothing was freed: the database was made without auto_vacuum and cannot return pages
			}
			return err
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// truncateLog copies the write-ahead log into the database file and empties the log. If readers still use an
// older state of the database, the log is not emptied, and the next round tries again.
func (j *janitor) truncateLog(ctx context.Context) error {
	if _, _, err := j.passive(ctx); err != nil {
		return err
	}
	j.writer.gate.Lock()
	defer j.writer.gate.Unlock()
	busy, _, _, err := j.copyLog(ctx, "TRUNCATE")
	if err != nil {
		return err
	}
	if !busy {
		j.wipe = false
		j.room.topUp(ctx)
	}
	return nil
}

// checkpoint copies the log into the database file while commits go on. If the log has walMax times its normal
// size, commits have to wait for the last pages.
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

// passive makes one checkpoint that does not wait for readers or writers. It returns how many pages the log
// has, and how many of them could not be copied.
func (j *janitor) passive(ctx context.Context) (size, left int64, err error) {
	_, size, done, err := j.copyLog(ctx, "PASSIVE")
	if err != nil {
		return 0, 0, err
	}
	j.left = size - done
	return size, j.left, nil
}

// copyLog makes one checkpoint in a mode of SQLite. It returns whether others were in the way, how many pages the log has,
// and how many of them are copied. If written data may have been lost, it refuses all writes for good (I-21).
func (j *janitor) copyLog(ctx context.Context, mode string) (busy bool, size, done int64, err error) {
	err = j.room.side.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+mode+`)`).Scan(&busy, &size, &done)
	if lost(err) && !j.room.noSpace(err) {
		_ = j.room.fail(readOnly(j.room.path, err))
	}
	if err != nil {
		err = Failure("store.checkpoint", err)
	}
	return busy, size, done, err
}
