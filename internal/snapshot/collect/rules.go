package collect

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Rules limit how many checkpoints are kept. A checkpoint that exceeds one of them is dropped.
//
// These are never dropped: checkpoints that somebody holds; those whose files are being put in place; of each scope and
// of each session the newest one, the newest that is not abandoned and has lost nothing, and the newest of these that
// has the files of the workspace.
type Rules struct {
	// Count is the maximum number of checkpoints of a scope (default 100; negative: no limit).
	Count int
	// Age is the maximum age of a checkpoint (default 30 days; negative: no limit).
	Age time.Duration
	// Bytes is the maximum size of all packs that are not marked as unneeded (0: no limit). Above it the oldest
	// checkpoints are dropped until the rest needs less, and all unneeded content is removed from packs. What a checkpoint
	// needs is an estimate, so several runs may be needed.
	Bytes int64
}

// Reason says which rule drops a checkpoint.
type Reason string

// The reasons: the rules Rules.Count, Rules.Age and Rules.Bytes.
const (
	ReasonCount Reason = "count"
	ReasonAge   Reason = "age"
	ReasonSize  Reason = "size"
)

// Drop is a checkpoint that the rules drop.
type Drop struct {
	Checkpoint holdfast.CheckpointID
	Session    holdfast.SessionID
	Scope      holdfast.BoxID
	Reason     Reason
}

// Facts is the state of the database and of the packs from which a run makes its plan.
type Facts struct {
	Now time.Time
	// Checkpoints are all checkpoints, in the order in which they were stored.
	Checkpoints []Checkpoint
	// Packs are all packs that the database knows, by number.
	Packs map[int64]Pack
	// Restoring are the checkpoints whose files are being put in place.
	Restoring map[holdfast.CheckpointID]bool
}

// Checkpoint is a checkpoint in Facts.
type Checkpoint struct {
	journal.Checkpoint
	// Lost is true if blobs of the checkpoint are known to be missing or damaged.
	Lost bool
	// Own is about how many bytes in packs this checkpoint needs that no newer one of its scope needs, and no scope of its
	// family that was surveyed earlier.
	Own int64
}

// Pack is a pack in Facts.
type Pack struct {
	journal.Pack
	Name pack.PackID
	// Fault says why the pack cannot be used; "" if no fault is known. Missing is true if the file does not exist.
	Fault   string
	Missing bool
}

// size returns the bytes of all packs that some checkpoint may need.
func (f *Facts) size() (sum int64) {
	for _, p := range f.Packs {
		if p.Unused == nil {
			sum += p.Bytes
		}
	}
	return sum
}

// Retain returns the checkpoints that the rules drop, in the order in which they were stored. It is a
// pure function.
func Retain(f Facts, r Rules) []Drop {
	count, age := cmp.Or(r.Count, 100), cmp.Or(r.Age, 30*24*time.Hour)
	stays := protected(f)
	why := map[holdfast.CheckpointID]Reason{}
	newer := map[holdfast.BoxID]int{}
	left := int64(0)
	for _, cp := range f.Checkpoints {
		left += cp.Own
	}
	for _, cp := range slices.Backward(f.Checkpoints) {
		n := newer[cp.Scope]
		newer[cp.Scope]++
		switch {
		case stays[cp.ID]:
			continue
		case count > 0 && n >= count:
			why[cp.ID] = ReasonCount
		case age > 0 && f.Now.Sub(cp.CreatedAt) > age:
			why[cp.ID] = ReasonAge
		default:
			continue
		}
		left -= cp.Own
	}
	var out []Drop
	for _, cp := range f.Checkpoints {
		if r.Bytes > 0 && left > r.Bytes && why[cp.ID] == "" && !stays[cp.ID] {
			why[cp.ID] = ReasonSize
			left -= cp.Own
		}
		if why[cp.ID] != "" {
			out = append(out, Drop{cp.ID, cp.Session, cp.Scope, why[cp.ID]})
		}
	}
	return out
}

// protected returns the checkpoints that no rule drops.
func protected(f Facts) map[holdfast.CheckpointID]bool {
	stays := map[holdfast.CheckpointID]bool{}
	// A scope and a session may have the same id, so the key says which of the two it is.
	type group struct {
		scope   holdfast.BoxID
		session holdfast.SessionID
		kind    int
	}
	const (
		every = iota
		usable
		withFiles // has the files of the workspace; a checkpoint lacks them if a borrowed workspace was too large then
	)
	seen := map[group]bool{}
	newest := func(cp Checkpoint, g group) {
		if !seen[g] {
			seen[g], stays[cp.ID] = true, true
		}
	}
	for _, cp := range slices.Backward(f.Checkpoints) {
		if cp.Held || f.Restoring[cp.ID] {
			stays[cp.ID] = true
		}
		kinds := []int{every}
		if !cp.Abandoned && !cp.Lost {
			if kinds = append(kinds, usable); cp.Workspace != "" {
				kinds = append(kinds, withFiles)
			}
		}
		for _, kind := range kinds {
			newest(cp, group{scope: cp.Scope, kind: kind})
			newest(cp, group{session: cp.Session, kind: kind})
		}
	}
	return stays
}
