package ignore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"path"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Size is how large a tree may be: its files, links and directories, and the bytes of its files.
type Size struct {
	Entries int
	Bytes   int64
}

// Selection decides which entries of a borrowed directory a checkpoint gets. One goroutine uses it.
type Selection struct {
	exclude func(path string) bool
	// rules is nil if paths that git ignores are stored too.
	rules *Tree
	top   rooted.Tree
	// read has the .gitignore files that were read, by path, with their stamps.
	read map[string]rooted.Stamp
	most Size
	size Size
	// err is the error of the first .gitignore file that could not be read.
	err error
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

// Again makes the selection ready for another walk, in which it reads the .gitignore files again.
func (c *Selection) Again() {
	c.read, c.err = map[string]rooted.Stamp{}, nil
	if c.rules != nil {
		c.rules.Again()
	}
}

// file returns the content of a directory's .gitignore file. It returns nil if there is none, if it is not a regular
// file or longer than MaxFile, and if it cannot be read: then it sets c.err.
func (c *Selection) file(ctx context.Context, dir string) []byte {
	name := path.Join(dir, Name)
	data, stamp, err := c.top.ReadFile(ctx, name, MaxFile)
	kind := holdfast.KindOf(err)
	switch {
	case err == nil:
		c.read[name] = stamp
		return data
	case kind == holdfast.KindNotFound, kind == holdfast.KindConflict, kind == holdfast.KindTooLarge, errors.Is(err, syscall.ENAMETOOLONG):
	case c.err == nil:
		c.err = holdfast.Errorf(kind, "snapshot", "the file %s cannot be read, so nobody knows which files git ignores: %w", holdfast.Quote(name), err).
			WithHint("make the file readable for the user who owns the directory, or remove it")
	}
	return nil
}

// Excludes reports whether a path is left out of every checkpoint. A .gitignore file is not, unless its directory is:
// it says what else checkpoints leave out.
func (c *Selection) Excludes(name string, dir bool) bool {
	base := path.Base(name)
	return base == gitDir || (base != Name || dir) && c.exclude(name)
}

// Ignores reports whether git ignores a path. A checkpoint leaves such a path out, unless an older checkpoint has it:
// otherwise an agent could hide with a .gitignore file what it does to the user's files.
func (c *Selection) Ignores(name string, dir bool) bool {
	return (path.Base(name) != Name || dir) && c.rules != nil && c.rules.Ignored(name, dir)
}

// gitDir is the name of directories that hold the user's git history, or of files that name such a directory.
const gitDir = ".git"

// Admit counts an entry that is not left out. It returns too_large once the entries, or the bytes of files, exceed the
// limit or the .gitignore files cost too much, and an error if a .gitignore file could not be read.
func (c *Selection) Admit(e rooted.Entry) error {
	if e.Depth == 0 {
		c.size = Size{}
	}
	if c.size.Entries++; e.Mode.IsRegular() {
		c.size.Bytes += min(e.Size, math.MaxInt64-c.size.Bytes)
	}
	if c.size.Entries > c.most.Entries || c.size.Bytes > c.most.Bytes {
		return holdfast.Errorf(holdfast.KindTooLarge, "snapshot", "the directory has more than %d files and directories or more than %d MiB, not counting what snapshots leave out", c.most.Entries, c.most.Bytes>>20).
			WithHint("add large directories to .gitignore, or to snapshots.exclude in the configuration")
	}
	if c.rules != nil {
		return cmp.Or(c.err, c.rules.Err())
	}
	return nil
}

// Measure finds out the size of the directory: it walks the directory as a scan does, and reads no files but .gitignore
// files. Errors are those of Admit, and those that end a walk.
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

// Steady returns conflict if a .gitignore file changed after it was read: the file in the checkpoint may then not be
// the one by which the checkpoint leaves paths out.
func (c *Selection) Steady(ctx context.Context) error {
	for name, was := range c.read {
		if now, err := c.top.Stat(ctx, name); err != nil || now != was {
			return holdfast.Errorf(holdfast.KindConflict, "snapshot", "the file %s changed while the files were read", holdfast.Quote(name)).WithHint("the next snapshot has the changes")
		}
	}
	return nil
}
