package wire

import (
	"fmt"
	"strings"
)

// MaxChanges is how many files Changes lists at most.
const MaxChanges = 100

// WatchRequest asks boxd to list the files of the workspace and store the listing under a name;
// the server sends it before a tool call that an agent in the box executes itself. With End boxd
// compares the workspace with the stored listing, and stores the result for repeated requests. A
// request for a known name lists nothing again. boxd stores the MaxWatches newest names.
type WatchRequest struct {
	Name string `json:"name"`
	End  bool   `json:"end,omitempty"`
}

// MaxWatches is how many listings boxd stores; MaxWatchName is the longest name of a listing, in
// bytes.
const (
	MaxWatches   = 16
	MaxWatchName = 200
)

// Changes lists the files that differ between two listings of the workspace, whichever process
// changed them. Name, inode, size, mode and times are compared, not content.
type Changes struct {
	// Files are the first MaxChanges changed files, sorted by path.
	Files []Change `json:"files,omitempty"`
	// More counts the changed files that are not in Files.
	More int `json:"more,omitempty"`
	// Unseen says why there may be further changes, which were not noticed; empty if all files
	// were compared.
	Unseen string `json:"unseen,omitempty"`
}

// Untold returns a sentence about the changes that Files leaves out, and for which therefore no
// fileChanged hook ran; empty if Files lists all changes.
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

// Change is one changed file. Its path is absolute.
type Change struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
}

// ChangeKind says how a file changed.
type ChangeKind string

// The kinds of changes.
const (
	ChangeCreated ChangeKind = "created"
	ChangeChanged ChangeKind = "changed"
	ChangeRemoved ChangeKind = "removed"
)
