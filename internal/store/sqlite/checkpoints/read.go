package checkpoints

import (
	"context"
	"iter"
	"math"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// neededPage is how many checkpoints Needed reads at a time.
const neededPage = 256

// Checkpoint returns a checkpoint of a session; not_found for an unknown one.
func (c *Store) Checkpoint(ctx context.Context, session holdfast.SessionID, id holdfast.CheckpointID) (journal.Checkpoint, error) {
	cp, ok, err := one(c.rows.one.QueryRowContext(ctx, session, id))
	if err == nil && !ok {
		err = journal.NoCheckpoint(session, id)
	}
	return cp, err
}

// one returns the checkpoint in row; false if the query found none.
func one(row db.Scanner) (journal.Checkpoint, bool, error) {
	cp, err := scan(row)
	ok, err := db.Found(err)
	if err != nil {
		return journal.Checkpoint{}, false, db.Failure("store.checkpoint", err)
	}
	return cp, ok, nil
}

// Checkpoints lists the checkpoints of a session that are before a place, newest first; with the
// zero Place the newest of all. The limit defaults to 50 and is at most 1000.
func (c *Store) Checkpoints(
	ctx context.Context, session holdfast.SessionID, before journal.Place, limit int,
) ([]journal.Checkpoint, error) {
	if before == (journal.Place{}) {
		before.Seq = math.MaxInt64
	}
	rows, err := c.rows.page.QueryContext(ctx, session, before.Seq, before.Order, db.Limit(limit, 50, 1000))
	return db.Collect("store.checkpoints", rows, err, scan)
}

// At returns the newest checkpoint of a session's present branch that is at or before an event; false
// if there is none.
func (c *Store) At(ctx context.Context, session holdfast.SessionID, seq int64) (journal.Checkpoint, bool, error) {
	return one(c.rows.at.QueryRowContext(ctx, session, seq))
}

// Within returns the newest checkpoint of a session at an event in one of the spans, which are
// ascending; false if there is none.
func (c *Store) Within(ctx context.Context, session holdfast.SessionID, branch []journal.Span) (journal.Checkpoint, bool, error) {
	for i := len(branch) - 1; i >= 0; i-- {
		cp, ok, err := one(c.rows.within.QueryRowContext(ctx, session, branch[i].After, branch[i].Upto))
		if ok || err != nil {
			return cp, ok, err
		}
	}
	return journal.Checkpoint{}, false, nil
}

// Newest returns the checkpoint of a scope that was stored last, also an abandoned one; false if
// there is none.
func (c *Store) Newest(ctx context.Context, scope holdfast.BoxID) (journal.Checkpoint, bool, error) {
	return one(c.rows.newest.QueryRowContext(ctx, scope))
}

// Needed lists all checkpoints in the order in which they were stored, read in pages. It includes
// those that are stored before the last page is read.
func (c *Store) Needed(ctx context.Context) iter.Seq2[journal.Checkpoint, error] {
	return func(yield func(journal.Checkpoint, error) bool) {
		last := int64(0)
		for {
			rows, err := c.rows.after.QueryContext(ctx, last, neededPage)
			page, err := db.Collect("store.checkpoints", rows, err, scan)
			if err != nil {
				yield(journal.Checkpoint{}, err)
				return
			}
			for _, cp := range page {
				if !yield(cp, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			last = page[len(page)-1].Order
		}
	}
}

// Packs returns the packs with these numbers, ascending; numbers that are not stored are left out.
func (c *Store) Packs(ctx context.Context, numbers []int64) ([]journal.Pack, error) {
	rows, err := c.packs.some.QueryContext(ctx, list(numbers))
	return db.Collect("store.packs", rows, err, scanPack)
}

// AllPacks returns all packs, ordered by number.
func (c *Store) AllPacks(ctx context.Context) ([]journal.Pack, error) {
	rows, err := c.packs.all.QueryContext(ctx)
	return db.Collect("store.packs", rows, err, scanPack)
}

// Restoring lists the marks of all scopes whose files are being replaced, ordered by scope.
func (c *Store) Restoring(ctx context.Context) ([]journal.Restore, error) {
	rows, err := c.restores.all.QueryContext(ctx)
	return db.Collect("store.restores", rows, err, scanRestore)
}

// RestoreOf returns the mark of a scope; false if it has none.
func (c *Store) RestoreOf(ctx context.Context, scope holdfast.BoxID) (journal.Restore, bool, error) {
	r, err := scanRestore(c.restores.one.QueryRowContext(ctx, scope))
	ok, err := db.Found(err)
	if err != nil {
		return journal.Restore{}, false, db.Failure("store.restores", err)
	}
	return r, ok, nil
}
