// Package edit changes single files of a directory that belongs to somebody else, as a plan says.
//
// Package snapshot uses it for rewinds into a user's own directory. Others may change the directory at any moment,
// and agents can write to it. Invariant (I-47): only the paths of a plan change, and a path changes only if it
// has the old entry of the plan. A file is complete before it gets its name. If others put an entry at a path while
// the path changes, their entry keeps the path.
package edit

import (
	"context"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Type is the type of an entry. Nothing is the type of a path at which there is no entry.
type Type uint8

// The types of entries.
const (
	Nothing Type = iota
	File
	Dir
	Symlink
)

// Entry is what is at a path. The zero Entry is nothing.
type Entry struct {
	Type Type
	// Mode has the permissions of a file or directory. Mtime is the modification time, in nanoseconds since 1970.
	Mode        uint32
	Size, Mtime int64
	// Target is the target of a symlink.
	Target string
	Xattrs []rooted.Xattr
	// Open returns the content of a file.
	Open func(ctx context.Context) (io.Reader, error)
}

// Step is one change: at Path, the entry Old is replaced by the entry New. Either may be the zero Entry.
type Step struct {
	Path     string
	Old, New Entry
}

// Plan has changes, in the order of a walk.
type Plan struct {
	Steps []Step
	// LeftOut is how many paths differ but stay as they are, because checkpoints leave them out.
	LeftOut int
}

// writes reports whether a step writes a file or symlink.
func (s Step) writes() bool { return s.New.Type == File || s.New.Type == Symlink }

// removes reports whether a step removes a file or symlink, and does not put another in its place.
func (s Step) removes() bool { return (s.Old.Type == File || s.Old.Type == Symlink) && !s.writes() }

// makes reports whether a step makes a directory. unmakes reports whether a step removes a directory, which must be
// empty then.
func (s Step) makes() bool   { return s.New.Type == Dir }
func (s Step) unmakes() bool { return s.Old.Type == Dir && s.New.Type != Dir }

// mostShown is how many paths a plan shows at most, mostConflicts how many conflicts.
const (
	mostShown     = 10_000
	mostConflicts = 20
)

// Show returns the plan in the form of the API, with the given paths as its conflicts.
func (p Plan) Show(conflicts []string) holdfast.RewindPlan {
	out := holdfast.RewindPlan{LeftOut: p.LeftOut, ConflictCount: len(conflicts)}
	n := 0
	add := func(list *[]string, path string) {
		if n++; n <= mostShown {
			*list = append(*list, text(path))
		}
	}
	for _, s := range p.Steps {
		switch {
		case s.removes():
			add(&out.Remove, s.Path)
		case s.unmakes():
			add(&out.RemoveDirs, s.Path)
		}
		switch {
		case s.writes():
			add(&out.Write, s.Path)
		case s.makes():
			add(&out.MakeDirs, s.Path)
		}
	}
	out.More = max(n-mostShown, 0)
	for _, c := range conflicts[:min(len(conflicts), mostConflicts)] {
		out.Conflicts = append(out.Conflicts, text(c))
	}
	return out
}

func text(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }

// Losses is for a plan whose old entries are those of a checkpoint and whose new ones are the present files. It returns
// the paths of entries that are missing now, of files that are empty now, and of those that differ in another way.
func (p Plan) Losses() (missing, empty, other []string) {
	for _, s := range p.Steps {
		switch path := text(s.Path); {
		case s.New.Type == Nothing:
			missing = append(missing, path)
		case s.New.Type == File && s.New.Size == 0:
			empty = append(empty, path)
		default:
			other = append(other, path)
		}
	}
	return missing, empty, other
}
