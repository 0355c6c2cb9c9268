package ignore

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxSteps is how much work one walk of a tree may cost, counted in bytes of .gitignore files, patterns, and steps of
	// matches.
	maxSteps = 1 << 30
	// maxOpen is how many bytes the .gitignore files of a directory and of those above it may have together.
	maxOpen = 1 << 20
	// Name is the name of the files that hold the patterns.
	Name = ".gitignore"
)

// Tree decides which paths of one tree git ignores. It is fastest for paths in the order of a walk. One goroutine uses
// it.
type Tree struct {
	read func(dir string) []byte
	// open are the directories above the path of the last question, the top first. bytes is the size of their .gitignore
	// files.
	open  []level
	bytes int
	steps int
}

// level is a directory above a path.
type level struct {
	// dir is the directory's path with a slash at the end; "" for the top.
	dir     string
	rules   *rules
	bytes   int
	ignored bool
}

// New returns the Tree whose .gitignore files the function read returns. Its argument is the path of a directory, "."
// for the top; it returns nil if the directory has no such file.
func New(read func(dir string) []byte) *Tree { return &Tree{read: read} }

// Ignored reports whether git ignores a path: a pattern matches it, or a directory above it is ignored.
func (t *Tree) Ignored(path string, dir bool) bool {
	if t.Err() != nil {
		return false
	}
	for n := len(t.open); n > 0 && !strings.HasPrefix(path, t.open[n-1].dir); n = len(t.open) {
		t.bytes -= t.open[n-1].bytes
		t.open = t.open[:n-1]
	}
	if len(t.open) == 0 {
		t.enter("", false)
	}
	for {
		top := t.open[len(t.open)-1]
		end := strings.IndexByte(path[len(top.dir):], '/')
		if end < 0 || top.ignored {
			break
		}
		below := path[:len(top.dir)+end]
		t.enter(below+"/", t.decide(below, true))
	}
	return t.open[len(t.open)-1].ignored || t.decide(path, dir)
}

// enter adds a directory to open, and reads its .gitignore file, unless git ignores the directory.
func (t *Tree) enter(dir string, ignored bool) {
	l := level{dir: dir, ignored: ignored}
	if !ignored {
		at := strings.TrimSuffix(dir, "/")
		if at == "" {
			at = "."
		}
		if data := t.read(at); len(data) > 0 && len(data) <= MaxFile {
			t.steps += len(data)
			l.rules, l.bytes = parse(data), len(data)
			t.bytes += len(data)
		}
	}
	t.open = append(t.open, l)
}

// decide reports whether the rules of the open directories ignore a path in the last of them.
func (t *Tree) decide(path string, dir bool) bool {
	for i := len(t.open) - 1; i >= 0; i-- {
		l := &t.open[i]
		if l.rules == nil {
			continue
		}
		if found, ignored := l.rules.decide(path[len(l.dir):], dir, &t.steps); found {
			return ignored
		}
	}
	return false
}

// Again makes the Tree ready for another walk: it reads all files again.
func (t *Tree) Again() { t.open, t.bytes, t.steps = nil, 0, 0 }

// Err returns too_large if the .gitignore files are too large together, or if their patterns cost too much work. From
// then on Ignored returns false for every path.
func (t *Tree) Err() error {
	if t.steps <= maxSteps && t.bytes <= maxOpen {
		return nil
	}
	return holdfast.Errorf(holdfast.KindTooLarge, "snapshot.ignore", "the .gitignore files are too large or too costly to match").
		WithHint("shorten the .gitignore files, or set snapshots.ignored: on in the configuration, so that snapshots do not read them")
}
