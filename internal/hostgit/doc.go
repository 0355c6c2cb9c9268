// Package hostgit finds the paths in a directory of the user's own whose content the git of the host obeys: the
// repositories that git enters when the user calls it there, with submodules (ADR 0099).
//
// internal/engine makes a Reader for each session in such a directory; internal/permit turns its paths into rules. The
// package imports the vocabulary only. Invariants: it only reads files, and does not run git; a file of any content
// costs bounded time and memory; if the package cannot tell what git obeys, Held returns an error, and the session's
// calls are denied.
package hostgit

import (
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// Reader finds the paths whose content git obeys in one directory. Not safe for concurrent use.
type Reader struct {
	// Dir is the directory's path on the host.
	Dir string

	looked bool
	stamps map[string]stamp
	held   []string
	err    error
	// again makes the next Look look again even if no file has changed, because the last one could not read one of them.
	again bool
}

// Held returns the paths that the last Look found: relative to the directory, with slashes, sorted. Each stands for
// itself and all that is below it; "." is the directory itself. The directory's own .git is never among them: callers
// must add it.
func (r *Reader) Held() ([]string, error) { return r.held, r.err }

// Look looks at the repositories, unless the last Look read all files that it needed and none of them has changed
// since. It reports whether the result of Held changed; the first Look reports true.
func (r *Reader) Look() (changed bool) {
	if r.looked && !r.again && !r.stale() {
		return false
	}
	f := &finder{stamps: map[string]stamp{}}
	err := f.find(r.Dir)
	if r.again = f.fault != nil; err == nil {
		err = f.fault
	}
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

// stamp shows whether a file has changed: then its stamp differs. The zero value stands for a file that does not exist
// or cannot be looked at. The stamp of a directory has only its mode and inode.
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
		info = target // for a symlink, all but the mode are those of its target
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.ino = sys.Ino
	}
	if !info.IsDir() {
		st.size, st.changed = info.Size(), info.ModTime()
	}
	return st
}
