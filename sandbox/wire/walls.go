package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Walls are path rules that boxd builds into the box's mounts. Paths are absolute
// paths in the box and clean; one that ends in a slash names a directory, whether it
// exists or not. The zero value restricts nothing.
type Walls struct {
	// Masked paths can be neither read nor written; ReadOnly paths can only be read.
	Masked   []string `json:"masked,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	// Readable and Writable hold lists of roots: a path may be read, or written, only if
	// it lies below a root of every list.
	Readable [][]string `json:"readable,omitempty"`
	Writable [][]string `json:"writable,omitempty"`
	// Patterns and WritePatterns are absolute globs of masked and of read-only paths. Each
	// segment matches as in path.Match; `**` is any number of directories.
	Patterns      []string `json:"patterns,omitempty"`
	WritePatterns []string `json:"write_patterns,omitempty"`
	// KeepHome leaves the home directory out of Readable and Writable: an agent's
	// program that runs in the box keeps its own state there.
	KeepHome bool `json:"keep_home,omitempty"`
}

// Empty reports whether the walls restrict nothing.
func (w Walls) Empty() bool {
	return len(w.Masked)+len(w.ReadOnly)+len(w.Readable)+len(w.Writable)+len(w.Patterns)+len(w.WritePatterns) == 0
}

// Canonical returns w with every list sorted and without duplicates, so that walls with the same
// paths in the same lists are equal.
func (w Walls) Canonical() Walls {
	set := func(list []string) []string {
		out := slices.Clone(list)
		slices.Sort(out)
		return slices.Compact(out)
	}
	sets := func(lists [][]string) [][]string {
		var out [][]string
		for _, l := range lists {
			out = append(out, set(l))
		}
		slices.SortFunc(out, slices.Compare)
		return slices.CompactFunc(out, slices.Equal)
	}
	out := Walls{
		Masked: set(w.Masked), ReadOnly: set(w.ReadOnly), Readable: sets(w.Readable), Writable: sets(w.Writable),
		Patterns: set(w.Patterns), WritePatterns: set(w.WritePatterns),
	}
	// KeepHome matters only if there are lists in Readable or Writable.
	out.KeepHome = w.KeepHome && len(w.Readable)+len(w.Writable) > 0
	return out
}

// Hash returns a hash that is the same for walls with equal canonical forms; empty if the walls
// restrict nothing.
func (w Walls) Hash() string {
	if w.Empty() {
		return ""
	}
	b, err := json.Marshal(w.Canonical())
	if err != nil {
		// Encoding strings as JSON never fails.
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// The values of Wall.Kind.
const (
	WallMasked   = "masked"
	WallReadOnly = "read-only"
	// WallAbsent covers a path that does not exist and must not be created: reads report that
	// it does not exist.
	WallAbsent = "absent"
	// WallPin prevents that a directory or symlink on the way to another wall is renamed or removed.
	WallPin = "pin"
)

// Wall is a mount that boxd has built for a path rule and tested, or a placeholder directory above one.
type Wall struct {
	// Path is the wall's path in the box, without symbolic links.
	Path string `json:"path"`
	Kind string `json:"kind"`
	Dir  bool   `json:"dir,omitempty"`
	// Made is true if the path did not exist, so that boxd created a placeholder for the mount.
	Made bool `json:"made,omitempty"`
	// Ino is the inode number of the file that the mount covers.
	Ino uint64 `json:"ino,omitempty"`
}
