package collect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// facts reads the database and the directory of packs. Commits go on meanwhile. It reads checkpoints first, then packs,
// then files: so each pack that a checkpoint lists is among the packs, and each pack's file among the files.
func (c *Collector) facts(ctx context.Context) (*Facts, error) {
	f := &Facts{Now: c.cfg.Clock(), Packs: map[int64]Pack{}, Restoring: map[holdfast.CheckpointID]bool{}}
	for cp, err := range c.cfg.DB.Needed(ctx) {
		if err != nil {
			return nil, err
		}
		f.Checkpoints = append(f.Checkpoints, Checkpoint{Checkpoint: cp})
	}
	marks, err := c.cfg.DB.Restoring(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range marks {
		f.Restoring[m.Checkpoint] = true
	}
	known, err := c.cfg.DB.AllPacks(ctx)
	if err != nil {
		return nil, err
	}
	files, err := c.cfg.Packs.List()
	if err != nil {
		return nil, err
	}
	size := map[pack.PackID]int64{}
	for _, file := range files {
		size[file.ID] = file.Bytes
	}
	for _, p := range known {
		id, err := pack.ParsePackID(p.ID)
		if err != nil {
			return nil, err
		}
		fault := c.damaged[id]
		have, ok := size[id]
		if !ok {
			fault = "the file is missing"
		} else if have != p.Bytes {
			fault = fmt.Sprintf("the file has %d bytes instead of %d", have, p.Bytes)
		}
		f.Packs[p.Number] = Pack{Pack: p, Name: id, Fault: fault, Missing: !ok}
		delete(size, id)
	}
	c.shun(f)
	c.meet(size, f.Now)
	return f, c.lose(ctx, f)
}

// shun empties the cache of pack indexes if a pack has become unusable. So no writer takes the blobs in this pack's
// index for stored ones.
func (c *Collector) shun(f *Facts) {
	before := c.unusable
	c.unusable = map[pack.PackID]bool{}
	for _, p := range f.Packs {
		if p.Fault != "" {
			if c.unusable[p.Name] = true; !before[p.Name] {
				c.cfg.Packs.Release()
			}
		}
	}
}

// meet remembers when each pack on disk that the database does not know was first seen.
func (c *Collector) meet(unknown map[pack.PackID]int64, now time.Time) {
	before := c.strangers
	c.strangers = map[pack.PackID]time.Time{}
	for id := range unknown {
		if c.strangers[id] = now; !before[id].IsZero() {
			c.strangers[id] = before[id]
		}
	}
}

// orphanAge is how long the database must not have known a pack before the pack is removed, or Config.Grace if that is
// longer. A commit makes its packs known moments after they are on disk.
const orphanAge = time.Hour

// orphans returns the packs that the database has not known for so long that their commits must have failed. If the
// database knows no pack at all, it may be a new one for an old store: then orphans returns none.
func (c *Collector) orphans(f *Facts) (out []pack.PackID) {
	for id, since := range c.strangers {
		if len(f.Packs) > 0 && f.Now.Sub(since) >= max(orphanAge, c.cfg.Grace) {
			out = append(out, id)
		}
	}
	return sorted(out)
}

func sorted(ids []pack.PackID) []pack.PackID {
	slices.SortFunc(ids, func(a, b pack.PackID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// lose sets Lost of the checkpoints that need a blob which no readable pack has any more.
func (c *Collector) lose(ctx context.Context, f *Facts) error {
	faulty := func(n int64) bool { return f.Packs[n].Fault != "" }
	for _, fam := range families(f.Checkpoints) {
		if !slices.ContainsFunc(fam.packs, faulty) {
			continue
		}
		there := map[pack.ID]bool{}
		var set pack.Set
		for _, n := range fam.packs {
			blobs, err := c.cfg.Packs.Blobs(f.Packs[n].Name)
			if faulty(n) || err != nil {
				continue
			}
			set = append(set, f.Packs[n].Name)
			for b := range blobs {
				there[b.ID] = true
			}
		}
		look := newLook(c.cfg.Packs.In(set), func(_ context.Context, id pack.ID) error {
			if !there[id] {
				return errAbsent
			}
			return nil
		})
		for _, sc := range fam.scopes {
			for _, cp := range sc.checkpoints {
				for _, root := range roots(cp) {
					whole, err := look.tree(ctx, root)
					if err != nil {
						return err
					}
					cp.Lost = cp.Lost || !whole
				}
			}
		}
	}
	return nil
}

var errAbsent = holdfast.Errorf(holdfast.KindNotFound, "collect", "none of the readable packs has the wanted blob")

// look checks trees for missing blobs. It remembers what it has checked, because trees have nodes in common.
type look struct {
	src tree.Source
	// good returns an error if a blob is missing or damaged.
	good func(context.Context, pack.ID) error
	// whole has the nodes that are good, with everything below them.
	whole map[pack.ID]bool
	// bad has the errors of blobs that are not good.
	bad map[pack.ID]error
	// blobs counts the good blobs that were met; a data blob counts once for each time that a node names it.
	blobs int
}

func newLook(src tree.Source, good func(context.Context, pack.ID) error) *look {
	return &look{src: src, good: good, whole: map[pack.ID]bool{}, bad: map[pack.ID]error{}}
}

// tree reports whether all blobs of a tree are good. It returns an error only if ctx ends.
func (l *look) tree(ctx context.Context, root pack.ID) (bool, error) {
	nodes, whole := map[pack.ID]bool{}, true
	err := tree.Blobs(ctx, l.src, root, func(kind pack.Kind, id pack.ID) bool {
		if l.whole[id] || nodes[id] || ctx.Err() != nil {
			return false
		}
		if l.bad[id] == nil {
			if err := l.good(ctx, id); err != nil {
				l.bad[id] = err
			} else {
				l.blobs++
			}
		}
		if l.bad[id] != nil {
			whole = false
			return false
		}
		if kind == pack.Node {
			nodes[id] = true
		}
		return kind == pack.Node
	})
	if ctx.Err() != nil {
		return false, holdfast.Errorf(holdfast.KindUnavailable, "collect", "the check of which checkpoints have lost files was stopped: %w", ctx.Err())
	}
	if err != nil {
		// A node could not be read, or it matches its id and is not valid: then the program that wrote it made a mistake.
		l.bad[root], whole = err, false
	}
	if whole {
		maps.Copy(l.whole, nodes)
	}
	return whole, nil
}

// faults returns the packs of the facts that cannot be used, sorted by number.
func (f *Facts) faults() []Fault {
	at := map[int64]int{}
	var out []Fault
	for _, n := range slices.Sorted(maps.Keys(f.Packs)) {
		if p := f.Packs[n]; p.Fault != "" {
			at[n] = len(out)
			out = append(out, Fault{Pack: p.Name, Number: n, Why: p.Fault})
		}
	}
	for _, cp := range f.Checkpoints {
		for _, n := range cp.Packs {
			if i, ok := at[n]; ok {
				out[i].Checkpoints = append(out[i].Checkpoints, cp.ID)
			}
		}
	}
	return out
}

// fault records that a pack cannot be used. The record stays until Verify finds the pack sound, or the pack is dropped.
func (c *Collector) fault(f *Facts, n int64, why error) {
	p := f.Packs[n]
	p.Fault = why.Error()
	f.Packs[n], c.damaged[p.Name] = p, p.Fault
}
