package snapshot

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/snapshot/ignore"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// Size is how large a tree may be.
type Size = ignore.Size

// choose configures a scan of a borrowed workspace to leave out what no checkpoint of it may have. If the newest
// checkpoint has no tree of the workspace, choose measures it before the scan and sets x.off if it is too large.
func choose(ctx context.Context, s *Snapshots, x *scanned, f Files, cfg *tree.Config) error {
	if err := ignore.Remember(f.Dir, s.cfg.Exclude); err != nil {
		return err
	}
	x.chosen = ignore.NewSelection(ctx, f.path(0), func(name string) bool {
		return s.exclude(name) || strings.HasPrefix(path.Base(name), edit.Prefix)
	}, !s.cfg.Ignored, s.cfg.Largest)
	// Programs outside of the box may write to the files, too.
	cfg.Processes, cfg.Bounds.Untouched, cfg.Bounds.Top = true, true, f.Same
	cfg.Exclude, cfg.Ignore, cfg.Admit = x.chosen.Excludes, x.chosen.Ignores, x.chosen.Admit
	if cfg.Last != (pack.ID{}) {
		return nil
	}
	err := x.chosen.Measure(ctx, cfg.Bounds)
	if x.chosen.Again(); x.tooLarge(err) {
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

// switched returns the notice that a borrowed workspace has no checkpoints from now on, or has some again; nil if
// neither is new. last is the newest checkpoint.
func (x *scanned) switched(f Files, last journal.Checkpoint) []journal.Draft {
	if was := last.ID != "" && last.Workspace == ""; x.chosen == nil || was == (x.off != nil) {
		return nil
	}
	n := told.Switched(f.path(0), x.off)
	n.Text = journal.Plain(n.Text)
	return []journal.Draft{{Type: holdfast.EventNotice, Data: n}}
}

// leaves tells which differences between the trees old and now do not count, because a checkpoint left out the path. It is
// nil unless i is 0, the workspace, and the workspace is borrowed. back is true if now is the older tree.
func (f Files) leaves(ctx context.Context, i int, src tree.Source, old, now pack.ID, back bool) (*ignore.Differences, error) {
	if i != 0 || !f.Borrowed {
		return nil, nil
	}
	patterns, err := ignore.Remembered(f.Dir)
	if err != nil {
		return nil, err
	}
	exclude, err := ignore.Patterns(patterns)
	if err != nil {
		return nil, err
	}
	return ignore.NewDifferences(exclude, rulesOf(ctx, src, old), rulesOf(ctx, src, now), back), nil
}

// rulesOf returns a function that reads the .gitignore file of a directory of a stored tree; nil stands for no rules.
func rulesOf(ctx context.Context, src tree.Source, root pack.ID) func(dir string) ([]byte, error) {
	return func(dir string) ([]byte, error) {
		if root == (pack.ID{}) {
			return nil, nil
		}
		e, r, err := tree.Read(ctx, src, root, path.Join(dir, ignore.Name))
		var known *holdfast.Error
		switch {
		case err == nil && e.Size <= ignore.MaxFile:
			return io.ReadAll(r)
		case err == nil, errors.As(err, &known) && known.Op == tree.LookupOp, holdfast.IsKind(err, holdfast.KindConflict):
			return nil, nil
		}
		return nil, err
	}
}

// untouched reports whether a difference between two checkpoints does not count, since one of them leaves the path out.
func untouched(d *ignore.Differences, c tree.Change) (bool, error) {
	return d.LeftOut(c.Path, c.Old.Type == 0, c.New.Type == 0, c.Old.Type == tree.Dir || c.New.Type == tree.Dir)
}

const permissions = 0o777 // the bits of a mode that a rewind of a borrowed workspace restores: not set-uid, set-gid, sticky

// same reports whether a rewind of a borrowed workspace has nothing to change from entry a to b: times, owners and
// modes of directories do not count.
func same(a, b tree.Entry) bool {
	switch {
	case a.Type != b.Type:
		return false
	case a.Type == tree.File:
		return a.SameContent(b) && a.Mode&permissions == b.Mode&permissions
	}
	return a.Target == b.Target
}

func entryOf(src tree.Source, root pack.ID, name string, e tree.Entry) edit.Entry {
	return edit.Entry{
		Type: map[tree.Type]edit.Type{tree.File: edit.File, tree.Dir: edit.Dir, tree.Symlink: edit.Symlink}[e.Type],
		Mode: uint32(e.Mode & permissions), Size: e.Size, Mtime: e.Mtime, Target: e.Target, Xattrs: e.Xattrs,
		Open: func(ctx context.Context) (io.Reader, error) {
			_, r, err := tree.Read(ctx, src, root, name)
			return r, err
		},
	}
}
