package ignore

import (
	"context"
	"math"
	"path"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Size is how large a tree may be: its files, links and directories, and the bytes of its files.
type Size struct {
	Entries int
	Bytes   int64
}

// Selection decides which entries of a directory checkpoints have. One goroutine uses it.
type Selection struct {
	exclude func(path string) bool
	// rules is nil if paths that git ignores are stored too.
	rules *Tree
	top   rooted.Tree
	// read are the .gitignore files that were read, with their states.
	read map[string]rooted.Stamp
	most Size
	size Size
}

// NewSelection returns the Selection of a directory: it leaves out the paths for which exclude returns true, and, if
// rules is true, those that git ignores. most limits the size of what is not left out.
func NewSelection(ctx context.Context, dir string, exclude func(path string) bool, rules bool, most Size) *Selection {
	c := &Selection{exclude: exclude, top: rooted.Tree(dir), most: most}
	if c.Again(); rules {
		c.rules = New(func(dir string) []byte { return c.file(ctx, dir) })
	}
	return c
}

// Again makes the selection ready for another walk.
func (c *Selection) Again() {
	c.read = map[string]rooted.Stamp{}
	if c.rules != nil {
		c.rules.Again()
	}
}

// file returns the content of a directory's .gitignore file; nil if git would read no such file there.
func (c *Selection) file(ctx context.Context, dir string) []byte {
	name := path.Join(dir, Name)
	data, stamp, err := c.top.ReadFile(ctx, name, MaxFile)
	if err != nil {
		return nil
	}
	c.read[name] = stamp
	return data
}

// Excludes reports whether a path is left out of every checkpoint. A .gitignore file never is, unless its directory
// is: it says what else a checkpoint leaves out.
func (c *Selection) Excludes(name string, dir bool) bool {
	base := path.Base(name)
	return base == gitDir || (base != Name || dir) && c.exclude(name)
}

// Ignores reports whether a checkpoint leaves a path out because git ignores it. A path that has once been stored stays: with a
// .gitignore file an agent could hide what it does to the user's files otherwise.
func (c *Selection) Ignores(name string, dir bool) bool {
	return (path.Base(name) != Name || dir) && c.rules != nil && c.rules.Ignored(name, dir)
}

// gitDir is the name of directories that hold the user's own history, or of files that lead to one.
const gitDir = ".git"

// Admit counts an entry that is not left out. It returns too_large once the entries, or the bytes of files, exceed the
// limit.
func (c *Selection) Admit(e rooted.Entry) error {
	if e.Depth == 0 {
		c.size = Size{}
	}
	if c.size.Entries++; e.Mode.IsRegular() {
		c.size.Bytes += min(e.Size, math.MaxInt64-c.size.Bytes)
	}
	if c.size.Entries > c.most.Entries || c.size.Bytes > c.most.Bytes {
		return holdfast.Errorf(holdfast.KindTooLarge, "snapshot", "the directory has more than %d files and directories or more than %d MiB, not counting what git ignores", c.most.Entries, c.most.Bytes>>20).
			WithHint("add large directories to .gitignore, or to snapshots.exclude in the configuration")
	}
	if c.rules != nil {
		return c.rules.Err()
	}
	return nil
}

// Measure walks the directory as a scan does to find out its size, and reads no files but .gitignore files. Errors are
// those of Admit.
func (c *Selection) Measure(ctx context.Context, bounds rooted.Bounds) error {
	for e, err := range rooted.Walk(ctx, string(c.top), bounds) {
		if err != nil && e.Name == "" {
			return err
		}
		if e.Again {
			continue
		}
		if e.Depth > 0 && (c.Excludes(e.Path(), e.Mode.IsDir()) || c.Ignores(e.Path(), e.Mode.IsDir())) {
			if e.Mode.IsDir() {
				e.Skip()
			}
			continue
		}
		if err := c.Admit(e); err != nil {
			return err
		}
	}
	return nil
}

// Steady returns conflict if a .gitignore file changed after it was read: the one that was stored does not say then what the
// checkpoint leaves out.
func (c *Selection) Steady(ctx context.Context) error {
	for name, was := range c.read {
		if now, err := c.top.Stat(ctx, name); err != nil || now != was {
			return holdfast.Errorf(holdfast.KindConflict, "snapshot", "the file %s changed while the files were read", holdfast.Quote(name)).WithHint("the next snapshot has the changes")
		}
	}
	return nil
}
