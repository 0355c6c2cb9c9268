package checkpoints

import (
	"context"
	"database/sql"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

const (
	// exactRows is the most checkpoints whose lists of packs one transaction of SetPacks replaces.
	exactRows = 200
	// listedPage is how many lists of packs are read at a time.
	listedPage = 1000
)

// AddPacks stores packs that no checkpoint lists yet, unused from now on, and returns them with their
// numbers. A pack that is stored already is returned as it is.
func (c *Store) AddPacks(ctx context.Context, packs []journal.Pack) ([]journal.Pack, error) {
	if err := journal.CheckPacks(packs); err != nil {
		return nil, err
	}
	var out []journal.Pack
	err := c.db.Do(ctx, "store.packs", &db.Op{Apply: func(t *db.Tx) error {
		out = make([]journal.Pack, len(packs))
		t.Pages += 2 * len(packs)
		for i, p := range packs {
			id, err := hex.DecodeString(p.ID)
			if err != nil {
				return err
			}
			if out[i], err = scanPack(c.packs.add.QueryRowContext(t.Ctx, t.NextNumber(), id, p.Bytes, t.NowMS)); err != nil {
				return err
			}
		}
		return nil
	}})
	return out, err
}

// SetPacks replaces the lists of packs of checkpoints, up to 200 in each transaction. Checkpoints that
// are not stored are left out; a list with a pack that is not stored is a conflict.
func (c *Store) SetPacks(ctx context.Context, exact map[holdfast.CheckpointID][]int64) error {
	for _, numbers := range exact {
		if err := journal.CheckPackNumbers(numbers); err != nil {
			return err
		}
	}
	c.keeping.Lock()
	defer c.keeping.Unlock()
	defer c.relisted.Add(1)
	for some := range slices.Chunk(slices.Sorted(maps.Keys(exact)), exactRows) {
		if err := c.setPacks(ctx, some, exact); err != nil {
			return err
		}
	}
	return nil
}

// setPacks replaces the lists of some checkpoints in one transaction.
func (c *Store) setPacks(ctx context.Context, some []holdfast.CheckpointID, exact map[holdfast.CheckpointID][]int64) error {
	var all []int64
	for _, id := range some {
		all = append(all, exact[id]...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return c.db.Do(ctx, "store.packs", &db.Op{
		Plan: func(t *db.Tx) error {
			absent, err := c.packs.absent(t, all)
			if err == nil && len(absent) > 0 {
				return holdfast.Errorf(holdfast.KindConflict, "store.packs", "the lists of packs of checkpoints were not replaced: pack number %d is not stored", absent[0])
			}
			return err
		},
		Apply: func(t *db.Tx) error {
			listed := false
			for _, id := range some {
				n, err := db.Affected(c.rows.exact.ExecContext(t.Ctx, encodeNumbers(exact[id]), id))
				if err != nil {
					return err
				}
				t.Pages += int(n)
				listed = listed || n > 0
			}
			if !listed {
				return nil
			}
			return c.packs.used(t, all)
		},
	})
}

// MarkUnused sets the time since which packs are unused. It leaves out packs that are marked already,
// that a checkpoint lists, or that are not stored.
func (c *Store) MarkUnused(ctx context.Context, numbers []int64, since time.Time) error {
	return c.unlisted(ctx, numbers, func(listed map[int64]bool) *db.Op {
		return &db.Op{Apply: func(t *db.Tx) error {
			free := slices.DeleteFunc(slices.Clone(numbers), func(n int64) bool { return listed[n] })
			res, err := c.packs.retire.ExecContext(t.Ctx, since.UnixMilli(), list(free))
			return changed(t, res, err)
		}}
	})
}

// DropPacks removes packs; conflict, with all of them kept, if a checkpoint lists one. Numbers that are
// not stored are left out.
func (c *Store) DropPacks(ctx context.Context, numbers []int64) error {
	return c.unlisted(ctx, numbers, func(listed map[int64]bool) *db.Op {
		return &db.Op{
			Plan: func(*db.Tx) error {
				for n := range listed {
					return holdfast.Errorf(holdfast.KindConflict, "store.packs", "pack number %d is not removed, because a checkpoint needs it", n)
				}
				return nil
			},
			Apply: func(t *db.Tx) error {
				res, err := c.packs.remove.ExecContext(t.Ctx, list(numbers))
				return changed(t, res, err)
			},
		}
	})
}

// unlisted carries out the Op that change returns. While its functions run, the map listed contains those of
// the numbers that any checkpoint lists. Most lists are read before the transaction, and only the newer ones
// in it, because the writer must not wait for a read of the whole table. Outside of commits only SetPacks
// adds packs to lists, and the mutex keeping excludes that.
func (c *Store) unlisted(ctx context.Context, numbers []int64, change func(listed map[int64]bool) *db.Op) error {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	asked := map[int64]bool{}
	for _, n := range numbers {
		asked[n] = true
	}
	before := map[int64]bool{}
	last, err := collect(ctx, c.rows.lists, 0, asked, before)
	if err != nil {
		return db.Failure("store.packs", err)
	}
	listed := map[int64]bool{}
	op := change(listed)
	plan := op.Plan
	op.Plan = func(t *db.Tx) error {
		clear(listed)
		maps.Copy(listed, before)
		if _, err := collect(t.Ctx, c.rows.newLists, last, asked, listed); err != nil || plan == nil {
			return err
		}
		return plan(t)
	}
	return c.db.Do(ctx, "store.packs", op)
}

// collect adds to listed those of the asked packs that checkpoints with an order above after list. It returns
// the order of the last checkpoint.
func collect(ctx context.Context, st *sql.Stmt, after int64, asked, listed map[int64]bool) (last int64, err error) {
	for {
		rows, err := st.QueryContext(ctx, after, listedPage)
		read, err := db.Collect("store.packs", rows, err, func(sc db.Scanner) (n int64, err error) {
			var raw []byte
			if err := sc.Scan(&n, &raw); err != nil {
				return n, err
			}
			numbers, err := decodeNumbers(raw)
			for _, p := range numbers {
				if asked[p] {
					listed[p] = true
				}
			}
			return n, err
		})
		if err != nil || len(read) == 0 {
			return after, err
		}
		after = read[len(read)-1]
	}
}

// DropCheckpoints removes checkpoints of a session in one transaction; conflict, with all of them kept,
// if somebody holds one or a mark names one. Ids that are not stored are left out. Packs stay.
func (c *Store) DropCheckpoints(ctx context.Context, session holdfast.SessionID, list []holdfast.CheckpointID) error {
	return c.remove(ctx, session, list, func(t *db.Tx) error {
		var id holdfast.CheckpointID
		ok, err := db.Found(c.rows.held.QueryRowContext(t.Ctx, ids(list)).Scan(&id))
		if err == nil && ok {
			return holdfast.Errorf(holdfast.KindConflict, "store.checkpoints", "checkpoint %s is held, so it is not removed", id).
				WithHint("holdfast session release %s %s", session, id)
		}
		return err
	})
}

// PurgeCheckpoints is DropCheckpoints for a purge, which removes held checkpoints too.
func (c *Store) PurgeCheckpoints(ctx context.Context, session holdfast.SessionID, list []holdfast.CheckpointID) error {
	return c.remove(ctx, session, list, func(*db.Tx) error { return nil })
}

// remove removes checkpoints of a session in one transaction, unless a mark names one of them or refuse
// returns an error.
func (c *Store) remove(ctx context.Context, session holdfast.SessionID, list []holdfast.CheckpointID, refuse func(*db.Tx) error) error {
	defer c.relisted.Add(1)
	return c.db.Do(ctx, "store.checkpoints", &db.Op{
		Plan: func(t *db.Tx) error {
			var r journal.Restore
			ok, err := db.Found(c.restores.marked.QueryRowContext(t.Ctx, ids(list)).Scan(&r.Scope, &r.Checkpoint))
			if err == nil && ok {
				return holdfast.Errorf(holdfast.KindConflict, "store.checkpoints",
					"checkpoint %s is not removed, because the files of box %s are being replaced by its files", r.Checkpoint, r.Scope)
			}
			if err != nil {
				return err
			}
			return refuse(t)
		},
		Apply: func(t *db.Tx) error {
			res, err := c.dropped.put.ExecContext(t.Ctx, ids(list), session)
			if err := changed(t, res, err); err != nil {
				return err
			}
			res, err = c.rows.remove.ExecContext(t.Ctx, ids(list), session)
			return changed(t, res, err)
		},
	})
}
