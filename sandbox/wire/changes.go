package wire

import (
	"fmt"
	"strings"
)

// MaxChanges is the most files that Changes name.
const MaxChanges = 100

// WatchRequest lists the workspace under a name, for a call that the agent in the box
// makes itself. With End it compares, and keeps the answer for whoever asks again. A name
// that is known is not listed again. boxd keeps the MaxWatches newest names.
type WatchRequest struct {
	Name string `json:"name"`
	End  bool   `json:"end,omitempty"`
}

// MaxWatches is how many listings boxd keeps, MaxWatchName the longest name of one.
const (
	MaxWatches   = 16
	MaxWatchName = 200
)

// Changes are the files of the workspace that differ between two listings of it, by
// whomever they were changed: name, inode, size, mode and times are compared, not content.
type Changes struct {
	// Files are the first MaxChanges of them, by path.
	Files []Change `json:"files,omitempty"`
	// More counts the others.
	More int `json:"more,omitempty"`
	// Unseen says why there may be changes that are not counted; empty: there are none.
	Unseen string `json:"unseen,omitempty"`
}

// Untold says in words which changes Files leaves out; empty: none.
func (c Changes) Untold() string {
	var out []string
	if c.More > 0 {
		out = append(out, fmt.Sprintf("%d changed files beyond the first %d", c.More, len(c.Files)))
	}
	if c.Unseen != "" {
		out = append(out, "files that were not compared ("+c.Unseen+")")
	}
	if len(out) == 0 {
		return ""
	}
	return "fileChanged hooks were not told of " + strings.Join(out, " and ")
}

// Change is one file that differs. Its path is absolute.
type Change struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
}

// ChangeKind is how a file differs.
type ChangeKind string

// The kinds of changes.
const (
	ChangeCreated ChangeKind = "created"
	ChangeChanged ChangeKind = "changed"
	ChangeRemoved ChangeKind = "removed"
)
