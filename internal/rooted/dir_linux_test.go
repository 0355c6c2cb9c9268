package rooted

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenDirFollowsNoLink: links and files that an agent may put on the way to a
// directory, or in its place, are refused.
func TestOpenDirFollowsNoLink(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(filepath.Join(top, "tree", "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "tree", "tree/up": "..", "tree/root": "/", "tree/in": "a"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	tree := filepath.Join(top, "tree")
	for _, rel := range []string{".", "a", "a/b"} {
		fd, err := OpenDir(tree, rel)
		if err != nil {
			t.Errorf("%s: %v", rel, err)
			continue
		}
		_ = unix.Close(fd)
	}
	for _, c := range [][2]string{{filepath.Join(top, "link"), "a"}, {tree, "up"}, {tree, "root"}, {tree, "in/b"}, {tree, ".."}, {tree, "a/../.."}, {tree, "/etc"}} {
		fd, err := OpenDir(c[0], c[1])
		if err == nil {
			_ = unix.Close(fd)
			t.Errorf("%s in %s was opened", c[1], c[0])
		}
	}
	if _, err := OpenDir(tree, "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}
