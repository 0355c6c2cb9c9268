package files

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boxd/paths"
)

// maxPending is how many bytes of names a walk holds in memory. A search that needs more is truncated.
const maxPending = 8 << 20

// walk reads the directories of a search and limits it: the entries that it reads, the bytes of names
// in memory, and its time. At a limit the search ends; its answer is truncated, and not an error.
type walk struct {
	door *door
	// top is the open directory where the walk begins, root the path by which it was opened. real is
	// its path with symlinks resolved if there is a scope, otherwise the same as root. Files below it
	// are opened by their paths from top, through no symlink.
	top        int
	root, real string

	left      int
	pending   int
	now       func() time.Time
	deadline  time.Time
	truncated bool
}

func (f *FS) newWalk() *walk {
	return &walk{door: &f.door, top: -1, left: f.maxEntries, now: f.now, deadline: f.now().Add(f.maxTime)}
}

// begin opens the directory where the walk starts. The caller must call end, also after an error.
func (w *walk) begin(op, shown, path string) (err error) {
	if w.top, err = w.door.open(op, shown, path, toList); err != nil {
		return err
	}
	w.root, w.real = path, path
	if w.door.scope != nil {
		w.real, err = paths.Where(w.top)
	}
	return err
}

func (w *walk) end() {
	if w.top >= 0 {
		_ = unix.Close(w.top)
	}
}

// holds reports whether the scope allows a file. rel is the path of the file below the root of the walk.
func (w *walk) holds(rel string) bool {
	if w.door.scope == nil {
		return true
	}
	return w.door.scope.holds(paths.Join(w.real, rel)) && !w.door.scope.refusesName(paths.Join(w.root, rel))
}

// late reports whether the walk's time is up.
func (w *walk) late() bool {
	if w.now().After(w.deadline) {
		w.truncated = true
		return true
	}
	return false
}

// over reports whether the walk must stop, because its time is up or too many entries were read.
func (w *walk) over() bool {
	if w.left <= 0 {
		w.truncated = true
		return true
	}
	return w.late()
}

// open opens a directory to list it. rel is its path below the root of the walk, with a slash at its end, or "" for the
// root itself.
func (w *walk) open(rel string) (int, error) {
	if rel == "" {
		rel = "."
	}
	fd, err := paths.Below(w.top, rel, toList)
	if err != nil {
		return -1, err
	}
	if err := w.door.notProc("walk", rel, fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// entries returns the entries of an open directory, sorted by name; at a limit of the walk, only some
// of them. The caller calls done with them when it no longer needs them.
func (w *walk) entries(dir int) ([]entry, error) {
	l := &lister{fd: dir}
	var out []entry
	for !w.over() {
		batch, err := l.next()
		if err != nil {
			w.done(out)
			return nil, err
		}
		if len(batch) == 0 {
			break
		}
		for _, e := range batch {
			out = append(out, e)
			w.pending += e.cost()
		}
		w.left -= len(batch)
		if w.pending > maxPending {
			w.truncated = true
			break
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func (w *walk) done(es []entry) {
	for _, e := range es {
		w.pending -= e.cost()
	}
}
