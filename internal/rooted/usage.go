package rooted

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxLinked bounds how many files with several names are remembered.
	maxLinked = 100_000
	// usageDepth is how deep a measurement goes. Returning to a directory costs time in
	// proportion to its depth.
	usageDepth = 10_000
)

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
	var u Usage
	linked := map[[2]uint64]bool{}
	for e, err := range Walk(ctx, dir, Bounds{Entries: most, Depth: usageDepth, Unordered: true}) {
		switch {
		case ctx.Err() != nil:
			return u, ctx.Err()
		case err != nil && e.Name == "" && !holdfast.IsKind(err, holdfast.KindTooLarge):
			return u, fail(op, err)
		case err != nil:
			u.Partial = true
		}
		if e.Name == "" || e.Again {
			continue
		}
		u.Entries++
		if e.Nlink > 1 && !e.Mode.IsDir() {
			id := [2]uint64{e.Dev, e.Ino}
			if linked[id] {
				continue
			}
			if len(linked) < maxLinked {
				linked[id] = true
			}
		}
		u.Bytes += e.Disk
	}
	return u, ctx.Err()
}

// Sync writes all cached data of a directory's file system to its disk.
func Sync(dir string) error { return syncFS(dir) }
