package place

import (
	"context"
	"io/fs"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Files accesses the trees of scopes without a box: Scope.Dir, Scope.Home and Scope.Tree. Package trees implements it
// for trees on this machine. A driver whose trees are elsewhere needs another implementation, for which the paths are
// only names. Safe for concurrent use.
type Files interface {
	// Seed makes a workspace if it is missing and copies files into it, which are durable when it
	// returns. It changes no existing file. After an interruption it can be repeated. kept are the paths of the files
	// that it did not copy because the workspace has something else there, or on the way.
	Seed(ctx context.Context, workspace string, files []rooted.File, uid, gid int) (kept []string, err error)
	// Usage measures a directory and everything below it.
	Usage(ctx context.Context, dir string) (rooted.Usage, error)
	// Remove removes a directory. A directory that does not exist is not an error. After an error or an interruption the
	// directory is there as it was, or nothing is at its path; Remove is then repeated to remove what is left elsewhere.
	Remove(ctx context.Context, dir string) error
	// Sync returns when everything written below a directory is durable.
	Sync(ctx context.Context, dir string) error
	// Tree returns a reader for a directory, which need not exist.
	Tree(dir string) Tree
}

// Tree reads one tree, whatever an agent changes there meanwhile. No path leads out of it. Names
// must be clean and relative.
type Tree interface {
	// Exists reports whether the tree's directory exists.
	Exists(ctx context.Context) bool
	// Stat and ReadFile are for regular files: not_found if the file does not exist, conflict if the path leads to
	// something else or through a symlink. ReadFile fails with too_large if the file has more than most bytes. The
	// stamp changes whenever the file changes.
	Stat(ctx context.Context, name string) (rooted.Stamp, error)
	ReadFile(ctx context.Context, name string, most int64) ([]byte, rooted.Stamp, error)
	// Readlink returns the target of a symlink as written; not_found if the path does not exist,
	// conflict if it is not a symlink.
	Readlink(ctx context.Context, name string) (string, error)
	// ReadDir returns the entries of a directory in any order, or too_large if it has more than
	// most.
	ReadDir(ctx context.Context, name string, most int) ([]fs.DirEntry, error)
}
