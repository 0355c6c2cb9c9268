package collect

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// survey is what the checkpoints of a family need of its packs.
type survey struct {
	packs []usage
	// blobs are the blobs of all packs that can be read.
	blobs map[pack.ID]place
	// records are the checkpoints of the family: a record in a pack may be needed if it describes one of them.
	records map[holdfast.CheckpointID]bool
	// exact has, for each scope of the family, the numbers of the packs that the scope needs, ascending. It is nil for a
	// scope that needs a blob which no readable pack has: none of the packs that it lists may be replaced.
	exact [][]int64
}

// place says where a blob is: in the pack at the index pack of survey.packs. If several packs have the blob, it is the
// largest. size is the size of the blob.
type place struct {
	pack, size uint32
	// seen is the number of the scope, counted from 1, that was the last to need the blob; 0 if none has needed it.
	seen uint32
}

// usage is a pack and how much of it is needed. total and live count bytes before compression: all of them, and the
// needed ones.
type usage struct {
	Pack
	total, live int64
	// scopes are the indexes of the scopes that need the pack, ascending. fixed is true for a pack that must not be
	// replaced, because a scope with lost blobs lists it.
	scopes []int
	fixed  bool
}

// survey reads the indexes of a family's packs and the nodes of its trees. It sets Own of the checkpoints.
func (c *Collector) survey(ctx context.Context, f *Facts, fam *family) (*survey, error) {
	s := &survey{blobs: map[pack.ID]place{}, records: map[holdfast.CheckpointID]bool{}, exact: make([][]int64, len(fam.scopes))}
	home := map[holdfast.CheckpointID]int{}
	for i, sc := range fam.scopes {
		for _, cp := range sc.checkpoints {
			home[cp.ID], s.records[cp.ID] = i, true
		}
	}
	for _, n := range fam.packs {
		if p, ok := f.Packs[n]; ok && p.Fault == "" {
			s.packs = append(s.packs, usage{Pack: p})
		}
	}
	slices.SortFunc(s.packs, func(a, b usage) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Number, b.Number))
	})
	needed := make([]map[int]bool, len(fam.scopes))
	for i := range needed {
		needed[i] = map[int]bool{}
	}
	var set pack.Set
	for i := range s.packs {
		u := &s.packs[i]
		set = append(set, u.Name)
		err := c.index(s, i)
		if err == nil {
			err = c.recordsOf(u, home, needed, i)
		}
		if err != nil {
			u.Fault = err.Error()
			c.fault(f, u.Number, err)
		}
	}
	src := watched{c.cfg.Packs.In(set), func(id pack.ID, err error) {
		if p, ok := s.blobs[id]; ok && ctx.Err() == nil {
			s.packs[p.pack].Fault = err.Error()
			c.fault(f, s.packs[p.pack].Number, err)
		}
	}}
	for i, sc := range fam.scopes {
		whole, err := s.walk(ctx, src, sc, uint32(i+1), needed[i])
		if err != nil {
			return nil, err
		}
		if whole {
			s.exact[i] = []int64{}
		}
	}
	s.settle(fam, needed)
	return s, nil
}

// watched is a source of blobs that calls the function failed for each blob that it cannot read.
type watched struct {
	tree.Source
	failed func(pack.ID, error)
}

func (w watched) Get(ctx context.Context, id pack.ID) ([]byte, error) {
	b, err := w.Source.Get(ctx, id)
	if err != nil {
		w.failed(id, err)
	}
	return b, err
}

// index adds the blobs of pack i to the survey.
func (c *Collector) index(s *survey, i int) error {
	u := &s.packs[i]
	blobs, err := c.cfg.Packs.Blobs(u.Name)
	if err != nil {
		return err
	}
	for b := range blobs {
		u.total += int64(b.Size)
		if _, ok := s.blobs[b.ID]; !ok {
			s.blobs[b.ID] = place{pack: uint32(i), size: uint32(b.Size)}
		}
	}
	return nil
}

// recordsOf adds the bytes of the records of pack i to the usage of that pack. A scope needs the pack if a record
// describes a stored checkpoint of the scope.
func (c *Collector) recordsOf(u *usage, home map[holdfast.CheckpointID]int, needed []map[int]bool, i int) error {
	if c.cfg.Record == nil {
		return nil
	}
	records, err := c.cfg.Packs.RecordsOf(u.Name)
	for _, r := range records {
		u.total += int64(len(r))
		id, ok := c.cfg.Record(r)
		if scope, kept := home[id]; ok && kept {
			u.live += int64(len(r))
			needed[scope][i] = true
		}
	}
	return err
}

// walk follows the trees of a scope, the newest first, and notes which packs the scope needs. It returns false if a
// blob is in no readable pack, or a node cannot be read.
func (s *survey) walk(ctx context.Context, src tree.Source, sc *scope, number uint32, needed map[int]bool) (bool, error) {
	whole := true
	for _, cp := range sc.checkpoints {
		cp.Own = 0
		for _, root := range roots(cp) {
			err := tree.Blobs(ctx, src, root, func(kind pack.Kind, id pack.ID) bool {
				p, ok := s.blobs[id]
				whole = whole && ok
				if !ok || p.seen == number {
					return false
				}
				u := &s.packs[p.pack]
				if p.seen == 0 {
					u.live += int64(p.size)
					cp.Own += u.Bytes * int64(p.size) / max(u.total, 1)
				}
				p.seen = number
				s.blobs[id], needed[int(p.pack)] = p, true
				return kind == pack.Node
			})
			if ctx.Err() != nil {
				return false, err
			}
			whole = whole && err == nil
		}
	}
	return whole, nil
}

// settle lists the packs that each scope needs (exact), and the scopes that need each pack. A scope with lost blobs is in
// neither list: its packs are marked as fixed, so that they stay as they are.
func (s *survey) settle(fam *family, needed []map[int]bool) {
	at := map[int64]int{}
	for i := range s.packs {
		at[s.packs[i].Number] = i
	}
	for i, sc := range fam.scopes {
		if s.exact[i] == nil {
			for _, cp := range sc.checkpoints {
				for _, n := range cp.Packs {
					if p, ok := at[n]; ok {
						s.packs[p].fixed = true
					}
				}
			}
			continue
		}
		for p := range s.packs {
			if needed[i][p] {
				s.packs[p].scopes = append(s.packs[p].scopes, i)
				s.exact[i] = append(s.exact[i], s.packs[p].Number)
			}
		}
		slices.Sort(s.exact[i])
	}
}

// roots returns the roots of the trees of a checkpoint.
func roots(cp *Checkpoint) (out []pack.ID) {
	for _, text := range []string{cp.Workspace, cp.Home} {
		if text != "" {
			out = append(out, parse(text))
		}
	}
	return out
}

// parse returns the id of a tree from its text. The database makes sure that the text stands for 32 bytes.
func parse(text string) (id pack.ID) {
	_, _ = hex.Decode(id[:], []byte(text))
	return id
}

// lists returns new lists of packs for those checkpoints that list a pack which does not stay, and adds the packs that
// stay to needed. A checkpoint whose listed packs all stay keeps its list, so that the database is written rarely.
func (s *survey) lists(fam *family, merged []Merge, needed map[int64]bool) map[holdfast.CheckpointID][]int64 {
	replaced := map[int64]bool{}
	for _, m := range merged {
		for _, n := range m.Packs {
			replaced[n] = true
		}
	}
	out := map[holdfast.CheckpointID][]int64{}
	for i, sc := range fam.scopes {
		stays := map[int64]bool{}
		for _, n := range s.exact[i] {
			stays[n] = !replaced[n]
		}
		for _, cp := range sc.checkpoints {
			list := cp.Packs
			if s.exact[i] != nil && slices.ContainsFunc(list, func(n int64) bool { return !stays[n] }) {
				list = s.exact[i]
				out[cp.ID] = list
			}
			for _, n := range list {
				if !replaced[n] {
					needed[n] = true
				}
			}
		}
	}
	return out
}
