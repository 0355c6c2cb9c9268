package checkpoints

import (
	"math"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// State returns what the tables contain of the checkpoints, packs and marks that the change f of a session
// names. others are the packs of a new checkpoint that are not in the list of the newest checkpoint of its
// scope; Write needs them.
func (c *Store) State(t *db.Tx, session holdfast.SessionID, f *journal.FilesChange) (st journal.StoredFiles, others []int64, err error) {
	if cp := f.Checkpoint; cp != nil {
		if st.Taken, err = found(c.rows.taken.QueryRowContext(t.Ctx, cp.ID)); err != nil {
			return st, nil, err
		}
		if st.Replaced, err = found(c.restores.of.QueryRowContext(t.Ctx, cp.Scope)); err != nil {
			return st, nil, err
		}
		if others, err = c.others(t, cp); err != nil {
			return st, nil, err
		}
		if st.Missing, err = c.packs.absent(t, others); err != nil {
			return st, nil, err
		}
	}
	if r := f.Restore; r != nil && r.Checkpoint != "" {
		if st.Target, err = found(c.rows.target.QueryRowContext(t.Ctx, r.Checkpoint, r.Session)); err != nil {
			return st, nil, err
		}
	}
	if f.Hold != nil {
		st.Holdable, err = found(c.rows.target.QueryRowContext(t.Ctx, f.Hold.Checkpoint, session))
	}
	return st, others, err
}

// found reports whether a query that selects 1 found a row.
func found(row db.Scanner) (bool, error) {
	var one int
	return db.Found(row.Scan(&one))
}

// others returns the packs of a new checkpoint that the newest checkpoint of its scope does not list. The
// packs that it does list, usually all, need no check: they are stored and in use.
func (c *Store) others(t *db.Tx, cp *journal.Checkpoint) ([]int64, error) {
	if len(cp.Packs) == 0 {
		return nil, nil
	}
	var raw []byte
	ok, err := db.Found(c.rows.newestList.QueryRowContext(t.Ctx, cp.Scope).Scan(&raw))
	if err != nil || !ok {
		return cp.Packs, err
	}
	listed, _ := decodeNumbers(raw) // nil if the list is damaged: then all packs are checked
	var out []int64
	for _, n := range cp.Packs {
		if _, ok := slices.BinarySearch(listed, n); !ok {
			out = append(out, n)
		}
	}
	return out, nil
}

// Write stores the files of a planned change to the session of row: first the packs, then the
// checkpoint, then which checkpoints of the session a rewind abandons, then the mark and the hold. It
// returns the numbers of the packs that the checkpoint needs. others are the packs that State returned.
func (c *Store) Write(t *db.Tx, row *journal.Row, f *journal.FilesChange, others []int64) (packs []int64, err error) {
	if f.Checkpoint != nil {
		if packs, err = c.insert(t, row.Number, f, others); err != nil {
			return nil, err
		}
	}
	if f.Rewind != nil {
		if err := c.rewind(t, row.Number, f.Rewind.Branch); err != nil {
			return nil, err
		}
	}
	if f.Restore != nil {
		if err := c.restores.set(t, f.Restore); err != nil {
			return nil, err
		}
	}
	if f.Hold == nil {
		return packs, nil
	}
	res, err := c.rows.hold.ExecContext(t.Ctx, f.Hold.Held, f.Hold.Checkpoint)
	return packs, changed(t, res, err)
}

// insert stores the new checkpoint of the session with the given number, and the packs that were written for
// it. It returns the numbers of all packs that the checkpoint needs.
func (c *Store) insert(t *db.Tx, session int64, f *journal.FilesChange, others []int64) ([]int64, error) {
	cp := f.Checkpoint
	if err := c.packs.used(t, others); err != nil {
		return nil, err
	}
	numbers := slices.Clone(cp.Packs)
	for _, p := range f.Packs {
		n, err := c.packs.insert(t, p)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if cp.Reason == holdfast.CheckpointFork {
		// A fork begins with turns of the original session. Their files are only in checkpoints of that session.
		if _, err := c.dropped.begin.ExecContext(t.Ctx, session); err != nil {
			return nil, err
		}
	}
	return numbers, c.rows.insert(t, session, cp, numbers)
}

// rewind makes exactly those checkpoints of a session abandoned that are outside of the spans.
func (c *Store) rewind(t *db.Tx, session int64, branch []journal.Span) error {
	set := func(abandoned bool, after, upto int64) error {
		if upto <= after {
			return nil
		}
		res, err := c.rows.abandon.ExecContext(t.Ctx, abandoned, session, after, upto)
		return changed(t, res, err)
	}
	end := int64(0)
	for _, s := range branch {
		if err := set(true, end, s.After); err != nil {
			return err
		}
		if err := set(false, s.After, s.Upto); err != nil {
			return err
		}
		end = s.Upto
	}
	return set(true, end, math.MaxInt64)
}

// Releases returns conflict while the files of another scope are being replaced by those of a checkpoint of
// this session. Until that has ended the session cannot be deleted.
func (c *Store) Releases(t *db.Tx, row *journal.Row) error {
	var scope holdfast.BoxID
	ok, err := db.Found(c.restores.foreign.QueryRowContext(t.Ctx, row.Number, row.ID.Box()).Scan(&scope))
	if err == nil && ok {
		return holdfast.Errorf(holdfast.KindConflict, "store.delete",
			"the files of box %s are being replaced by those of a checkpoint of session %s", scope, row.ID).
			WithHint("try again when that restore has ended")
	}
	return err
}

// Forget removes the checkpoints of a deleted session, the record of where dropped ones were, and the mark of
// the session's own scope. It does not remove packs.
func (c *Store) Forget(t *db.Tx, row *journal.Row) error {
	if _, err := c.restores.remove.ExecContext(t.Ctx, row.ID.Box()); err != nil {
		return err
	}
	res, err := c.dropped.remove.ExecContext(t.Ctx, row.Number)
	if err := changed(t, res, err); err != nil {
		return err
	}
	res, err = c.rows.removeSession.ExecContext(t.Ctx, row.Number)
	return changed(t, res, err)
}
