// Package trees gives the server the workspaces of sessions whose boxes run on this machine.
//
// Package app passes a Local to the engine, which knows only the interface place.Files. This package
// imports place and rooted. Invariant: whatever an agent changes in a tree meanwhile, no call reaches a
// file outside the tree, because all calls use package rooted.
package trees

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Local are the trees on this machine. Safe for concurrent use.
type Local struct{}

var _ place.Files = Local{}

// Seed implements place.Files.
func (Local) Seed(_ context.Context, workspace string, files []rooted.File, uid, gid int) ([]string, error) {
	return rooted.Seed(workspace, files, uid, gid)
}

// Usage implements place.Files.
func (Local) Usage(ctx context.Context, dir string) (rooted.Usage, error) {
	return rooted.DiskUsage(ctx, dir, 0)
}

// Remove implements place.Files.
func (Local) Remove(_ context.Context, dir string) error { return rooted.Discard(dir) }

// Sync implements place.Files.
func (Local) Sync(_ context.Context, dir string) error { return rooted.Sync(dir) }

// Tree implements place.Files. It reads files with the rights of the tree's owner, because their content goes to a model.
func (Local) Tree(dir string) place.Tree { return rooted.Owned{Tree: rooted.Tree(dir)} }
