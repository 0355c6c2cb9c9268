package collect

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/holdfast-run/holdfast"
)

// family is a group of scopes whose checkpoints list packs of each other: a scope and its forks. No pack
// belongs to two families.
type family struct {
	scopes []*scope
	// packs are the numbers of all packs that the checkpoints list, ascending.
	packs []int64
}

// scope is the files of one session, or of sessions that share them, with the checkpoints of these files.
type scope struct {
	id holdfast.BoxID
	// checkpoints are those of the scope, the newest first.
	checkpoints []*Checkpoint
}

// families groups checkpoints into families. The argument has them in the order in which they were stored.
func families(all []Checkpoint) []*family {
	scopes := map[holdfast.BoxID]*scope{}
	of := map[holdfast.BoxID]*family{}
	owner := map[int64]*family{}
	for i := range all {
		cp := &all[i]
		f := of[cp.Scope]
		if f == nil {
			scopes[cp.Scope] = &scope{id: cp.Scope}
			f = &family{scopes: []*scope{scopes[cp.Scope]}}
			of[cp.Scope] = f
		}
		scopes[cp.Scope].checkpoints = append(scopes[cp.Scope].checkpoints, cp)
		for _, n := range cp.Packs {
			switch other := owner[n]; other {
			case f:
			case nil:
				owner[n], f.packs = f, append(f.packs, n)
			default:
				// Two families become one. The packs and scopes of the smaller family are moved, so that each pack moves only a
				// few times.
				if len(other.packs) > len(f.packs) {
					f, other = other, f
				}
				for _, s := range other.scopes {
					of[s.id] = f
				}
				for _, p := range other.packs {
					owner[p] = f
				}
				f.scopes, f.packs = append(f.scopes, other.scopes...), append(f.packs, other.packs...)
			}
		}
	}
	var out []*family
	seen := map[*family]bool{}
	for i := range all {
		if f := of[all[i].Scope]; !seen[f] {
			seen[f] = true
			slices.Sort(f.packs)
			for _, s := range f.scopes {
				slices.Reverse(s.checkpoints)
			}
			out = append(out, f)
		}
	}
	return out
}

// key returns a hash of the checkpoints of a family, their lists of packs, and the packs with a fault.
func (f *family) key(seed maphash.Seed, facts *Facts) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	put := func(n int64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) } // a hash never fails
	for _, s := range f.scopes {
		for _, cp := range s.checkpoints {
			put(cp.Order)
			put(int64(len(cp.Packs)))
			for _, n := range cp.Packs {
				put(n)
			}
		}
	}
	for _, n := range f.packs {
		if facts.Packs[n].Fault != "" {
			put(n)
		}
	}
	return h.Sum64()
}
