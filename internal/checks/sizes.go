package checks

import (
	"context"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Size is the size of a part of a data directory: the sum of the lengths of its files, in bytes.
type Size struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Sizes returns the sizes of the parts of a data directory that exist. It counts each directory below workspaces
// separately, but not workspaces elsewhere on the disk.
func Sizes(ctx context.Context, data string) (sizes []Size) {
	parts := []string{"holdfast.db", "holdfast.db-wal", "agents", "runtimes", "snapshots", "run", "sessions"}
	list, _ := os.ReadDir(filepath.Join(data, "workspaces")) // if the directory cannot be read, no workspaces are counted
	for _, e := range list {
		if e.IsDir() {
			parts = append(parts, filepath.Join("workspaces", e.Name()))
		}
	}
	for _, part := range parts {
		if n, ok := diskUse(ctx, filepath.Join(data, part)); ok {
			sizes = append(sizes, Size{Name: part, Bytes: n})
		}
	}
	return sizes
}

// diskUse sums the sizes of the files below a path. Agents can write some of them, so files that
// cannot be read are skipped. ok is false if the path cannot be read itself.
func diskUse(ctx context.Context, path string) (total int64, ok bool) {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		if err == nil && info.Mode().IsRegular() {
			total = info.Size()
		}
		return total, err == nil
	}
	for e := range rooted.Walk(ctx, path, rooted.Bounds{Entries: mostFiles, Depth: 10_000, Unordered: true}) {
		if e.Mode.IsRegular() {
			total += e.Size
		}
	}
	return total, true
}

// mostFiles is the most files that are counted in one size.
const mostFiles = 10_000_000
