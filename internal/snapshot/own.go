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

func exists(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// path returns the path of tree i (0 is the workspace, 1 the home directory), for reading.
func (f Files) path(i int) string {
	if i == 0 && f.Workspace != "" {
		return f.Workspace
	}
	return filepath.Join(f.Dir, names[i])
}

// ownTree is a tree that the server may replace, repair and remove as a whole. All code that does so is in this file, and
// gets the tree from Files.own alone (I-47).
type ownTree struct{ dir string }

// own returns tree i for replacing, repairing or removing it; ok is false for a borrowed workspace, which allows none of that.
func (f Files) own(i int) (t ownTree, ok bool) {
	if i == 0 && f.Borrowed {
		return ownTree{}, false
	}
	return ownTree{f.path(i)}, true
}

// tree returns the borrowed workspace, for changes of single files.
func (f Files) tree() edit.Tree { return edit.Tree{Dir: f.path(0), Is: f.Same} }

// there returns conflict if the borrowed workspace of a session is gone, and the error of Same if another one is there.
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

// refuse returns the error for replacing a borrowed workspace.
func (f Files) refuse(row journal.Row) error {
	if err := f.there(row); err != nil {
		return err
	}
	return told.Refused(row.ID, f.path(0))
}

// forgetScans removes what the scans remember, so that the next ones read every file.
func (f Files) forgetScans() error { return rooted.RemoveAll(filepath.Join(f.Dir, scansDir)) }

// apply changes the tree in place from one stored tree to another.
func (t ownTree) apply(ctx context.Context, src tree.Source, from, to pack.ID, owners tree.Owners) error {
	return tree.Apply(ctx, src, from, to, t.dir, owners)
}

// mend restores single entries, as tree.Mend does.
func (t ownTree) mend(ctx context.Context, src tree.Source, root pack.ID, owners tree.Owners,
	choose func(path string, stored tree.Entry, now rooted.Entry) bool,
) ([]string, error) {
	return tree.Mend(ctx, src, root, t.dir, owners, choose)
}

func (t ownTree) remove() error { return rooted.RemoveAll(t.dir) }

// restore replaces the tree by a stored one. It writes the stored tree into a new directory, removes the old one, and renames
// the new one to its path; so that path never has a tree that is half written. No checkpoint has the files that it removes.
func (t ownTree) restore(ctx context.Context, src tree.Source, root pack.ID, owners tree.Owners) error {
	dir := t.dir
	const suffix = ".restoring"
	if err := rooted.RemoveAll(dir + suffix); err != nil { // an interrupted restore may have left it
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot.restore", "%w", err)
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
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot.restore", "%w", err)
	}
	return nil
}
