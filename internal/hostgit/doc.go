// Package hostgit finds the paths in a directory of the user's own whose content the git of the host obeys: the repositories
// that git enters when the user calls it there, with submodules (ADR 0099).
//
// internal/engine makes a Reader for each session in such a directory; internal/permit turns its paths into rules. It imports
// the vocabulary only. Invariants: it only reads, and calls no git; a file of any content costs bounded time and memory; if it
// cannot tell what git obeys, it fails, and the session's calls are denied.
package hostgit

import (
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// Reader finds the paths of one directory. Not safe for concurrent use.
type Reader struct {
	// Dir is the directory's path on the host.
	Dir string

	looked bool
	stamps map[string]stamp
	held   []string
	err    error
}

// Held returns the paths as of the last Look: relative to the directory, with slashes, sorted. Each stands for itself and all that
// is below it; "." is the directory itself. The directory's .git is not among them: it counts always.
func (r *Reader) Held() ([]string, error) { return r.held, r.err }

// Look looks at the repositories again if a file that the last Look read has changed, and reports whether the result of Held
// changed.
func (r *Reader) Look() (changed bool) {
	if r.looked && !r.stale() {
		return false
	}
	f := &finder{stamps: map[string]stamp{}}
	err := f.find(r.Dir)
	held := f.list()
	changed = !r.looked || !slices.Equal(held, r.held) || text(err) != text(r.err)
	r.looked, r.stamps, r.held, r.err = true, f.stamps, held, err
	return changed
}

func (r *Reader) stale() bool {
	for path, st := range r.stamps {
		if stampOf(path) != st {
			return true
		}
	}
	return false
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// stamp shows whether a file has changed: then it differs. The zero value stands for a file that does not exist. For
// directories only the kind and the inode count.
type stamp struct {
	mode    fs.FileMode
	size    int64
	changed time.Time
	ino     uint64
}

func stampOf(path string) stamp {
	info, err := os.Lstat(path)
	if err != nil {
		return stamp{}
	}
	st := stamp{mode: info.Mode()}
	if target, err := os.Stat(path); err == nil {
		info = target // of a symlink
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.ino = sys.Ino
	}
	if !info.IsDir() {
		st.size, st.changed = info.Size(), info.ModTime()
	}
	return st
}
