package ignore

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// Differences decides which differences between two checkpoints of a directory do not count, because one of the
// checkpoints leaves the path out. The nil Differences leaves no path out. One goroutine uses it.
type Differences struct {
	exclude  func(path string) bool
	old, now *Tree
	back     bool
	err      error
}

// NewDifferences returns the Differences of two checkpoints. old and now return the .gitignore file of a directory in
// them, nil if it has none; back says that the second checkpoint was taken before the first. What exclude reports may
// be missing in either. What a .gitignore file of the older checkpoint covers counts as left out if that checkpoint
// does not have it, whatever the settings were then: so too much stays rather than too little. What the newer one does
// not have is gone, because a path that was stored once is not left out later.
func NewDifferences(exclude func(path string) bool, old, now func(dir string) ([]byte, error), back bool) *Differences {
	d := &Differences{exclude: exclude, back: back}
	keep := func(read func(dir string) ([]byte, error)) func(dir string) []byte {
		return func(dir string) []byte {
			data, err := read(dir)
			d.err = errors.Join(d.err, err)
			return data
		}
	}
	d.old, d.now = New(keep(old)), New(keep(now))
	return d
}

// LeftOut reports whether a path is left out. added says that the first checkpoint does not have the path, removed that
// the second one does not, dir that it is a directory. Callers must pass paths in the order of a walk.
func (l *Differences) LeftOut(name string, added, removed, dir bool) (bool, error) {
	if l == nil || name == "." {
		return false, nil
	}
	rules := path.Base(name) == Name && !dir
	out := slices.Contains(strings.Split(name, "/"), gitDir)
	if !out && (added && !l.back || rules) {
		out = l.old.Ignored(name, dir)
	}
	if !out && (removed && l.back || rules) {
		out = l.now.Ignored(name, dir)
	}
	for at := name; !out && (added || removed) && at != "."; at = path.Dir(at) {
		out = l.exclude(at)
	}
	return out, errors.Join(l.err, l.old.Err(), l.now.Err())
}
