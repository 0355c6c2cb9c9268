// Package edit changes single files of a directory that belongs to somebody else, from one stored tree to another.
//
// Package snapshot uses it for rewinds into a user's own directory. Others may change the directory at any moment,
// and agents can write to it. Invariant: nothing changes but the paths of a plan, and each of them only if it is
// what the plan says that it was; a file is complete before it gets its name.
package edit

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// Step is one change: of what is at a path to what a checkpoint has there. A zero Entry stands for nothing.
type Step struct {
	Path     string
	Old, New tree.Entry
}

// Plan are the changes from one stored tree to another, in the order of a walk. Times, owners and modes of directories
// are no changes.
type Plan struct {
	Steps []Step
	// LeftOut is how many paths differ and stay as they are.
	LeftOut int
}

// permissions are the bits of a mode that an edit compares and sets. A file never gets set-uid or set-gid.
const permissions = 0o777

// Make returns the plan from one stored tree to another. skip reports whether a path stays as it is.
func Make(ctx context.Context, src tree.Source, from, to pack.ID, skip func(tree.Change) (bool, error)) (p Plan, err error) {
	for c, err := range tree.Diff(ctx, src, from, to) {
		if err != nil {
			return p, err
		}
		if c.Path == "." || Same(c.Old, c.New) {
			continue
		}
		left, err := skip(c)
		if err != nil {
			return p, err
		}
		if left {
			p.LeftOut++
			continue
		}
		p.Steps = append(p.Steps, Step{c.Path, c.Old, c.New})
	}
	return p, nil
}

// Same reports whether two entries of the same path need no change.
func Same(a, b tree.Entry) bool {
	switch {
	case a.Type != b.Type:
		return false
	case a.Type == tree.File:
		return a.SameContent(b) && a.Mode&permissions == b.Mode&permissions
	}
	return a.Target == b.Target
}

// Writes, Removes, Makes and Unmakes report what a step does: it writes a file or symlink, removes one, makes a directory, or
// removes one that is empty. A step may do two of them.
func (s Step) Writes() bool { return s.New.Type == tree.File || s.New.Type == tree.Symlink }

// Removes implements the contract of Writes.
func (s Step) Removes() bool {
	return (s.Old.Type == tree.File || s.Old.Type == tree.Symlink) && !s.Writes()
}

// Makes implements the contract of Writes.
func (s Step) Makes() bool { return s.New.Type == tree.Dir }

// Unmakes implements the contract of Writes.
func (s Step) Unmakes() bool { return s.Old.Type == tree.Dir && s.New.Type != tree.Dir }
