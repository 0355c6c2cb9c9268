package app

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// trees are the trees of boxes on this machine.
type trees struct{}

var _ place.Files = trees{}

// Seed implements place.Files.
func (trees) Seed(_ context.Context, workspace string, files []rooted.File, uid, gid int) error {
	return rooted.Seed(workspace, files, uid, gid)
}

// Usage implements place.Files.
func (trees) Usage(ctx context.Context, dir string) (rooted.Usage, error) {
	return rooted.DiskUsage(ctx, dir, 0)
}

// Remove implements place.Files.
func (trees) Remove(_ context.Context, dir string) error { return rooted.RemoveAll(dir) }

// Sync implements place.Files.
func (trees) Sync(_ context.Context, dir string) error { return rooted.Sync(dir) }

// Tree implements place.Files.
func (trees) Tree(dir string) place.Tree { return rooted.Tree(dir) }
