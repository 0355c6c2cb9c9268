package rooted

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxLinked is how many files with several names (hard links) a measurement remembers. Others count once for each
	// name.
	maxLinked = 100_000
	// usageDepth is how many levels of directories a measurement reads. It is limited, because returning to a directory
	// costs time in proportion to the directory's depth.
	usageDepth = 10_000
)

// Usage is how much disk space a tree uses.
type Usage struct {
	// Bytes is the size of the disk blocks in use. Hard links count once, holes of sparse files do not count.
	Bytes int64
	// Entries is the number of files and directories, with the tree's own directory.
	Entries int
	// Partial reports that the tree may hold more than was counted, because of a limit, a mount, or a directory that
	// cannot be read.
	Partial bool
}

// Space is the size of a file system (Bytes, Files) and what ordinary users can still use of it (Free in bytes,
// FreeFiles in files). Files is 0 for a file system without a limit of files.
type Space struct{ Bytes, Free, Files, FreeFiles int64 }

// DiskSpace returns the size and the free space of the file system that has a directory.
func DiskSpace(dir string) (Space, error) {
	const op = "disk.space"
	dir, err := absolute(op, dir)
	if err != nil {
		return Space{}, err
	}
	s, err := space(dir)
	return s, fail(op, err)
}

// DiskUsage measures a tree. It counts no more than most files and directories; if most is not above 0, a million. It
// follows no symlink and enters no mount. When ctx ends, it returns what it has counted, with the error of ctx.
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

// Sync writes all cached data of the directory's file system to its disk.
func Sync(dir string) error { return syncFS(dir) }
