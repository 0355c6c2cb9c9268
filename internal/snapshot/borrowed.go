package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/snapshot/ignore"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// Size is how large a tree may be: its files, links and directories, and the bytes of its files.
type Size struct {
	Entries int
	Bytes   int64
}

// selection decides which entries of a borrowed workspace a scan stores.
type selection struct {
	exclude func(path string) bool
	// rules is nil if paths that git ignores are stored too.
	rules *ignore.Tree
	top   rooted.Tree
	// read are the .gitignore files that were read, with their states.
	read map[string]rooted.Stamp
	most Size
	size Size
}

// choose makes a scan of a borrowed workspace leave out what its checkpoints do not have. If the workspace is too large,
// x.off says so. A tree of which nothing is stored is measured before anything of it is read.
func (s *Snapshots) choose(ctx context.Context, x *scanned, f Files, cfg *tree.Config) error {
	if err := f.noteExcludes(s.cfg.Exclude); err != nil {
		return err
	}
	c := &selection{exclude: s.exclude, top: rooted.Tree(f.path(0)), most: s.cfg.Largest}
	if c.again(); !s.cfg.Ignored {
		c.rules = ignore.New(func(dir string) []byte { return c.file(ctx, dir) })
	}
	x.chosen = c
	// Other programs than those of the box may write to the files.
	cfg.Processes, cfg.Bounds.Untouched, cfg.Exclude, cfg.Admit = true, true, c.leaves, c.admit
	if cfg.Last != (pack.ID{}) {
		return nil
	}
	err := c.measure(ctx, *cfg)
	if c.again(); x.tooLarge(err) {
		return nil
	}
	return err
}

// tooLarge reports whether an error says that a borrowed workspace is too large for checkpoints, and notes it.
func (x *scanned) tooLarge(err error) bool {
	if x.chosen == nil || !holdfast.IsKind(err, holdfast.KindTooLarge) {
		return false
	}
	x.off = err
	return true
}

// again makes the selection ready for another walk.
func (c *selection) again() {
	c.read = map[string]rooted.Stamp{}
	if c.rules != nil {
		c.rules.Again()
	}
}

// file returns the .gitignore file of a directory, if git would read it.
func (c *selection) file(ctx context.Context, dir string) []byte {
	name := path.Join(dir, ignore.Name)
	data, stamp, err := c.top.ReadFile(ctx, name, ignore.MaxFile)
	if err != nil {
		return nil
	}
	c.read[name] = stamp
	return data
}

// leaves reports whether a path is left out. A .gitignore file is stored wherever its directory is: it says
// what the checkpoint leaves out.
func (c *selection) leaves(name string, dir bool) bool {
	base := path.Base(name)
	switch {
	case base == gitDir || strings.HasPrefix(base, edit.Prefix):
		return true
	case base == ignore.Name && !dir:
		return false
	}
	return c.exclude(name) || c.rules != nil && c.rules.Ignored(name, dir)
}

// gitDir is the name of directories that hold the user's own history, or of files that lead to one.
const gitDir = ".git"

// admit counts an entry that is not left out.
func (c *selection) admit(e rooted.Entry) error {
	if e.Depth == 0 {
		c.size = Size{}
	}
	if c.size.Entries++; e.Mode.IsRegular() {
		c.size.Bytes += e.Size
	}
	if c.size.Entries > c.most.Entries || c.size.Bytes > c.most.Bytes {
		return holdfast.Errorf(holdfast.KindTooLarge, "snapshot", "it has more than %d files and directories or more than %d MiB, what git ignores aside", c.most.Entries, c.most.Bytes>>20).
			WithHint("add large directories to .gitignore, or to snapshots.exclude in the configuration")
	}
	if c.rules != nil {
		return c.rules.Err()
	}
	return nil
}

// measure walks a tree as the scan will, and reads no file but those with patterns.
func (c *selection) measure(ctx context.Context, cfg tree.Config) error {
	for e, err := range rooted.Walk(ctx, cfg.Dir, cfg.Bounds) {
		if err != nil && e.Name == "" {
			return err
		}
		if e.Again {
			continue
		}
		if e.Depth > 0 && c.leaves(e.Path(), e.Mode.IsDir()) {
			if e.Mode.IsDir() {
				e.Skip()
			}
			continue
		}
		if err := c.admit(e); err != nil {
			return err
		}
	}
	return nil
}

// steady returns conflict if a .gitignore file changed after it was read: the one that was stored does not say then what the
// checkpoint leaves out.
func (c *selection) steady(ctx context.Context) error {
	for name, was := range c.read {
		if now, err := c.top.Stat(ctx, name); err != nil || now != was {
			return holdfast.Errorf(holdfast.KindConflict, "snapshot", "%s changed while the files were read", holdfast.Quote(name)).WithHint("the next snapshot has the changes")
		}
	}
	return nil
}

// switched returns the notice that checkpoints of a borrowed workspace end, or begin again. last is the checkpoint before.
func (x *scanned) switched(f Files, last journal.Checkpoint) []journal.Draft {
	was := last.ID != "" && last.Workspace == ""
	n := holdfast.Notice{Code: holdfast.NoticeCheckpointsOn, Text: "The directory " + f.path(0) + " has checkpoints again."}
	switch {
	case x.chosen == nil || was == (x.off != nil):
		return nil
	case x.off != nil:
		n.Code, n.Level = holdfast.NoticeCheckpointsOff, "warning"
		n.Text = "The directory " + f.path(0) + " has no checkpoints from now on, so that no rewind can restore its files: " + x.off.Error() + "."
		if hint := holdfast.HintOf(x.off); hint != "" {
			n.Text += " To have them again: " + hint + "."
		}
	}
	n.Text = journal.Plain(n.Text)
	return []journal.Draft{{Type: holdfast.EventNotice, Data: n}}
}

// excludesFile is a file beside the trees with all patterns that snapshots.exclude had while the workspace was borrowed.
const excludesFile = "left-out"

// excludes returns the patterns that left paths out of some checkpoint.
func (f Files) excludes() (list []string, err error) {
	data, err := os.ReadFile(filepath.Join(f.Dir, excludesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "snapshot", "%w", err)
	}
	return list, nil
}

// noteExcludes records patterns before a scan uses them.
func (f Files) noteExcludes(patterns []string) error {
	known, err := f.excludes()
	if err != nil {
		return err
	}
	all := known
	for _, p := range patterns {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	if len(all) == len(known) {
		return nil
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = durable.MkdirAll(f.Dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(filepath.Join(f.Dir, excludesFile), durable.Bytes(data))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "%w", err).WithHint("free space on the disk of the data directory")
	}
	return nil
}

// leaves decides which differences between two checkpoints of a borrowed workspace are none: those of paths that one of
// the checkpoints leaves out. A nil leaves knows no such path. One goroutine uses it.
type leaves struct {
	exclude  func(path string) bool
	old, now *ignore.Tree
	err      error
}

// leaves returns what two stored trees leave out. What a .gitignore file of a tree covers counts as left out
// if the tree does not have it, whatever the settings were then, so that too much stays rather than too little.
func (f Files) leaves(ctx context.Context, i int, src tree.Source, old, now pack.ID) (*leaves, error) {
	if i != 0 || !f.Borrowed {
		return nil, nil
	}
	patterns, err := f.excludes()
	if err != nil {
		return nil, err
	}
	l := &leaves{}
	if l.exclude, err = excludes(patterns); err != nil {
		return nil, err
	}
	l.old, l.now = l.rules(ctx, src, old), l.rules(ctx, src, now)
	return l, nil
}

// rules returns the rules of the .gitignore files in a stored tree.
func (l *leaves) rules(ctx context.Context, src tree.Source, root pack.ID) *ignore.Tree {
	return ignore.New(func(dir string) []byte {
		if root == (pack.ID{}) {
			return nil
		}
		e, r, err := tree.Read(ctx, src, root, path.Join(dir, ignore.Name))
		if err == nil && e.Size <= ignore.MaxFile {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				return data
			}
		}
		var known *holdfast.Error
		if err != nil && !(errors.As(err, &known) && known.Op == tree.LookupOp) && !holdfast.IsKind(err, holdfast.KindConflict) {
			l.err = err
		}
		return nil
	})
}

// out reports whether a difference is none. The differences come in the order of a walk.
func (l *leaves) out(c tree.Change) (bool, error) {
	return l.leaves(c.Path, c.Old.Type == 0, c.New.Type == 0, c.Old.Type == tree.Dir || c.New.Type == tree.Dir)
}

// leaves is out for a path that is missing in one of the trees, or in none.
func (l *leaves) leaves(name string, added, removed, dir bool) (bool, error) {
	if l == nil || name == "." {
		return false, nil
	}
	rules := path.Base(name) == ignore.Name && !dir
	out := slices.Contains(strings.Split(name, "/"), gitDir)
	if !out && (added || rules) {
		out = l.old.Ignored(name, dir)
	}
	if !out && (removed || rules) {
		out = l.now.Ignored(name, dir)
	}
	for at := name; !out && (added || removed) && at != "."; at = path.Dir(at) {
		out = l.exclude(at)
	}
	return out, errors.Join(l.err, l.old.Err(), l.now.Err())
}
