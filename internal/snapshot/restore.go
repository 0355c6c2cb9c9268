package snapshot

import (
	"context"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

func exists(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// restore writes a stored tree into a directory beside dir, and then renames that to dir. So dir never has a part of
// the tree. What was at dir is removed: it belongs to no checkpoint.
func restore(ctx context.Context, src tree.Source, root pack.ID, dir string, owners tree.Owners) error {
	const suffix = ".restoring"
	if err := rooted.RemoveAll(dir + suffix); err != nil { // of an interrupted restore
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
