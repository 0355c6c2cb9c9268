package snapshot

import (
	"context"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// exists reports whether dir is a directory, or may be one because an error of the disk hides what it is.
func exists(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() || err != nil && !rooted.Absent(err)
}

// path returns the path of tree i (0 is the workspace, 1 the home directory), for reading.
func (f Files) path(i int) string {
	if i == 0 && f.Workspace != "" {
		return f.Workspace
	}
	return filepath.Join(f.Dir, names[i])
}

// ownTree is a tree that the server may replace, repair and remove as a whole. Only its methods, all in this file, do
// so, and only Files.own returns one (I-47).
type ownTree struct{ dir string }

// own returns tree i for replacing, repairing or removing it; ok is false for a borrowed workspace, which allows none of that.
func (f Files) own(i int) (t ownTree, ok bool) {
	if i == 0 && f.Borrowed {
		return ownTree{}, false
	}
	return ownTree{f.path(i)}, true
}

// tree returns the borrowed workspace as package edit needs it, for changes of single files.
func (f Files) tree() edit.Tree { return edit.Tree{Dir: f.path(0), Is: f.Same} }

// there returns conflict if the borrowed workspace of a session is gone, and the error of Same for another directory.
func (f Files) there(row journal.Row) error {
	if !f.Borrowed || f.Same == nil && exists(f.path(0)) {
		return nil
	}
	top, err := f.tree().Open()
	if err == nil {
		top.Close()
		return nil
	}
	if !exists(f.path(0)) && f.Same == nil || holdfast.IsKind(err, holdfast.KindNotFound) {
		return told.Gone(row.ID, f.path(0))
	}
	return err
}

func (f Files) refuse(row journal.Row) error {
	if err := f.there(row); err != nil {
		return err
	}
	return told.Refused(row.ID, f.path(0))
}

// forgetScans removes what the scans have stored about the files, so that the next scans read every file.
func (f Files) forgetScans() error { return rooted.RemoveAll(filepath.Join(f.Dir, scansDir)) }

func (t ownTree) apply(ctx context.Context, src tree.Source, from, to pack.ID, owners tree.Owners) error {
	return tree.Apply(ctx, src, from, to, t.dir, owners)
}

func (t ownTree) mend(ctx context.Context, src tree.Source, root pack.ID, owners tree.Owners,
	choose func(path string, stored tree.Entry, now rooted.Entry) bool,
) ([]string, error) {
	return tree.Mend(ctx, src, root, t.dir, owners, choose)
}

func (t ownTree) remove() error { return rooted.Discard(t.dir) }

// sweep removes what an interrupted remove left.
func (t ownTree) sweep() error { return rooted.RemoveAll(t.dir + rooted.Aside) }

// restore replaces the tree by a stored one. It writes the stored tree into a new directory, removes the old tree, and
// renames the new one: so t.dir never has a half-written tree. Old files that no checkpoint has are lost.
func (t ownTree) restore(ctx context.Context, src tree.Source, root pack.ID, owners tree.Owners) error {
	dir := t.dir
	const suffix = ".restoring"
	if err := rooted.RemoveAll(dir + suffix); err != nil { // an interrupted restore may have left this directory
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot.restore", "cannot make the directory for restored files: %w", err)
	}
	if err := tree.Restore(ctx, src, root, dir+suffix, owners); err != nil {
		return err
	}
	if err := rooted.RemoveAll(dir); err != nil {
		return err
	}
	err := os.Rename(dir+suffix, dir)
	if err == nil {
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot.restore", "cannot put restored files in their place: %w", err)
	}
	return nil
}
