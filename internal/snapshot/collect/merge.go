package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// tiers are classes of packs by size: a pack belongs to the first tier whose limit below is above the pack's size in
// bytes. If a scope needs more packs of a tier than the number most, the packs of this tier and of all smaller tiers
// are merged. So a scope has few packs that are less than half full, and a byte is copied only a few times before it is
// in a pack that is at least half full.
var tiers = []struct {
	below int64
	most  int
}{{64 << 10, 16}, {1 << 20, 16}, {pack.MaxPack / 2, 32}}

// batchBytes is about how many needed bytes a merge copies at most, so that they fit into one new pack.
const batchBytes = pack.MaxPack - 1<<20

// Merge is a plan for a group of packs: new packs with their needed content replace them.
type Merge struct {
	// Scopes are the scopes that need the packs.
	Scopes []holdfast.BoxID
	Packs  []int64
	// Bytes is the size of the packs; Live is about how much of it is needed.
	Bytes int64
	Live  int64

	// at are the indexes of the packs in survey.packs, scopes are the indexes of their scopes in the family.
	at, scopes []int
}

// merges plans the merges of a family: of many small packs, and of packs of which less than half of the content is
// needed. If every is true, each pack with any unneeded content is replaced. Packs with a fault, and fixed ones, stay.
// It is a pure function.
func (s *survey) merges(fam *family, every bool) []Merge {
	groups := map[string][]int{}
	var order []string
	counts := make([][]int, len(fam.scopes))
	for i, u := range s.packs {
		if len(u.scopes) == 0 || u.fixed || u.Fault != "" {
			continue
		}
		key := fmt.Sprint(u.scopes)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], i)
		for _, sc := range u.scopes {
			if counts[sc] == nil {
				counts[sc] = make([]int, len(tiers)+1)
			}
			counts[sc][tier(u.Bytes)]++
		}
	}
	var out []Merge
	for _, key := range order {
		limit := int64(0)
		for _, sc := range s.packs[groups[key][0]].scopes {
			for i, t := range tiers {
				if counts[sc][i] > t.most {
					limit = max(limit, t.below)
				}
			}
		}
		out = append(out, s.batches(fam, groups[key], limit, every)...)
	}
	return out
}

// tier returns the index of the tier of a pack; len(tiers) if it is at least half full.
func tier(bytes int64) int {
	for i, t := range tiers {
		if bytes < t.below {
			return i
		}
	}
	return len(tiers)
}

// batches makes merges of those packs of a group that are smaller than limit or mostly unneeded, so that the needed
// content of each merge fits into one new pack.
func (s *survey) batches(fam *family, group []int, limit int64, every bool) []Merge {
	slices.SortFunc(group, func(a, b int) int { return cmp.Compare(s.packs[a].Number, s.packs[b].Number) })
	var out []Merge
	var m Merge
	worth := false
	end := func() {
		if worth || len(m.Packs) > 1 {
			m.scopes = s.packs[group[0]].scopes
			for _, sc := range m.scopes {
				m.Scopes = append(m.Scopes, fam.scopes[sc].id)
			}
			out = append(out, m)
		}
		m, worth = Merge{}, false
	}
	for _, i := range group {
		u := &s.packs[i]
		waste := u.live*2 < u.total || every && u.live < u.total
		if !waste && u.Bytes >= limit {
			continue
		}
		live := u.Bytes * u.live / max(u.total, 1)
		if m.Live+live > batchBytes {
			end()
		}
		worth = worth || waste
		m.Packs, m.at = append(m.Packs, u.Number), append(m.at, i)
		m.Bytes += u.Bytes
		m.Live += live
	}
	end()
	return out
}

// merge executes a merge until the database knows the new packs, and changes the survey's lists of packs (exact).
func (c *Collector) merge(ctx context.Context, s *survey, m Merge) error {
	from := map[uint32]bool{}
	var set pack.Set
	for _, i := range m.at {
		from[uint32(i)] = true
		set = append(set, s.packs[i].Name)
	}
	live := pack.Live{Blob: func(id pack.ID) bool {
		p := s.blobs[id]
		return p.seen != 0 && from[p.pack]
	}}
	if c.cfg.Record != nil {
		live.Record = func(data []byte) bool {
			id, ok := c.cfg.Record(data)
			return !ok || s.records[id]
		}
	}
	infos, err := c.cfg.Packs.Repack(ctx, set, live)
	if err != nil {
		return err
	}
	var names []pack.PackID
	var added []journal.Pack
	for _, in := range infos {
		names = append(names, in.ID)
		added = append(added, journal.Pack{ID: in.ID.String(), Bytes: in.Bytes})
	}
	if added, err = c.cfg.DB.AddPacks(ctx, added); err != nil {
		return errors.Join(err, c.cfg.Packs.Remove(names...))
	}
	for _, sc := range m.scopes {
		list := slices.DeleteFunc(s.exact[sc], func(n int64) bool { return slices.Contains(m.Packs, n) })
		for _, p := range added {
			list = append(list, p.Number)
		}
		slices.Sort(list)
		s.exact[sc] = list
	}
	return nil
}

// blame finds the packs of a failed merge that are damaged, and records a fault for each.
func (c *Collector) blame(ctx context.Context, f *Facts, m Merge) {
	for _, n := range m.Packs {
		if err := c.cfg.Packs.Verify(ctx, f.Packs[n].Name); err != nil && ctx.Err() == nil {
			c.fault(f, n, err)
		}
	}
}
