package rooted

import "context"

// Usage is what a tree takes.
type Usage struct {
	// Bytes are the blocks in use, of hard links once; sparse files count what they hold.
	Bytes int64
	// Entries counts files and directories, the tree itself included.
	Entries int
	// Partial: there is more than was counted, because of the bound, of a mount or
	// of a directory that cannot be read.
	Partial bool
}

// Space is what the file system of a directory has in all and free, for
// ordinary users: in bytes and in files. A file system without a number of files
// says 0.
type Space struct{ Bytes, Free, Files, FreeFiles int64 }

// DiskSpace measures the file system of a directory.
func DiskSpace(dir string) (Space, error) {
	const op = "disk.space"
	dir, err := absolute(op, dir)
	if err != nil {
		return Space{}, err
	}
	s, err := space(dir)
	return s, fail(op, err)
}

// DiskUsage measures a tree, looking at no more than most entries (0 is a
// million), without following symlinks or entering mounts. It ends by ctx.
func DiskUsage(ctx context.Context, dir string, most int) (Usage, error) {
	const op = "tree.usage"
	dir, err := absolute(op, dir)
	if err != nil {
		return Usage{}, err
	}
	if most <= 0 {
		most = 1_000_000
	}
	u, err := usage(ctx, dir, most)
	if ctx.Err() != nil {
		return u, ctx.Err()
	}
	return u, fail(op, err)
}

// Sync writes all cached data of a directory's file system to its disk.
func Sync(dir string) error { return syncFS(dir) }
