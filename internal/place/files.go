package place

import (
	"context"
	"io/fs"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Files is the one way to the trees of scopes without a box: to Scope.Dir and what lies in it.
// Package trees has the one for trees on this machine; a driver whose trees are elsewhere needs
// another, for which the paths are names. Safe for concurrent use.
type Files interface {
	// Seed makes a workspace if it is missing and copies files into it, which are durable
	// when it returns. It changes nothing that exists. Cut off, it can be repeated.
	Seed(ctx context.Context, workspace string, files []rooted.File, uid, gid int) error
	// Usage measures a directory and all that lies below it.
	Usage(ctx context.Context, dir string) (rooted.Usage, error)
	// Remove removes a directory; one that does not exist is no error. After an error it can
	// be repeated.
	Remove(ctx context.Context, dir string) error
	// Sync returns when all that was written below a directory is durable.
	Sync(ctx context.Context, dir string) error
	// Tree reads below a directory, which need not exist.
	Tree(dir string) Tree
}

// Tree reads one tree, whatever an agent does there meanwhile. No path leads out of it. Names
// are clean and relative.
type Tree interface {
	// Exists reports whether the directory is there.
	Exists(ctx context.Context) bool
	// Stat and ReadFile are for regular files: not_found if there is none, conflict if the path
	// leads to something else or through a symlink, too_large if it has more than most bytes.
	// The stamp changes with the file.
	Stat(ctx context.Context, name string) (rooted.Stamp, error)
	ReadFile(ctx context.Context, name string, most int64) ([]byte, rooted.Stamp, error)
	// Readlink returns the target of a symlink as written: not_found if nothing is there,
	// conflict if it is something else.
	Readlink(ctx context.Context, name string) (string, error)
	// ReadDir returns the entries of a directory in any order, too_large if there are more than
	// most.
	ReadDir(ctx context.Context, name string, most int) ([]fs.DirEntry, error)
}
