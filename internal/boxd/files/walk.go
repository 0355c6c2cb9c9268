package files

import (
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// maxPending is how many bytes of names a walk holds at a time.
const maxPending = 8 << 20

// entry is one name of a directory.
type entry struct {
	name string
	typ  fs.FileMode
}

func (e entry) cost() int { return len(e.name) + 32 }

// walk bounds a search through a tree: entries looked at, names held, time.
// What the bounds cut off is reported as truncated, never as an error.
type walk struct {
	left      int
	pending   int
	now       func() time.Time
	deadline  time.Time
	truncated bool
}

func (f *FS) newWalk() *walk {
	return &walk{left: f.cfg.MaxEntries, now: f.cfg.Now, deadline: f.cfg.Now().Add(f.cfg.MaxTime)}
}

// late reports that the walk's time is up.
func (w *walk) late() bool {
	if w.now().After(w.deadline) {
		w.truncated = true
		return true
	}
	return false
}

// over reports that no more may be read, for time or for entries.
func (w *walk) over() bool {
	if w.left <= 0 {
		w.truncated = true
		return true
	}
	return w.late()
}

// entries reads a directory, sorted by name. The caller gives them back with done.
func (w *walk) entries(path string) ([]entry, error) {
	d, err := openDir(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var out []entry
	for !w.over() {
		batch, err := d.ReadDir(dirBatch)
		for _, e := range batch {
			it := entry{name: e.Name(), typ: e.Type()}
			out = append(out, it)
			w.pending += it.cost()
		}
		w.left -= len(batch)
		if w.pending > maxPending {
			w.truncated = true
			break
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			w.done(out)
			return nil, err
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
