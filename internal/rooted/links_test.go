package rooted

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// Links are read as written, and lead nowhere out of the tree.
func TestLinksOfATree(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o644))
	must(t, os.Symlink("../..", filepath.Join(dir, "d/up")))
	must(t, os.Symlink("/etc", filepath.Join(dir, "etc")))
	if to, err := Tree(dir).Readlink(t.Context(), "d/up"); err != nil || to != "../.." {
		t.Errorf("%q, %v", to, err)
	}
	for name, kind := range map[string]holdfast.Kind{"d/f": holdfast.KindConflict, "d": holdfast.KindConflict, "gone": holdfast.KindNotFound} {
		if _, err := Tree(dir).Readlink(t.Context(), name); !holdfast.IsKind(err, kind) {
			t.Errorf("%s: %v, want %s", name, err, kind)
		}
	}
	for _, out := range []string{"etc/passwd", "d/up/x", "../x", "/etc/passwd"} {
		if to, err := Tree(dir).Readlink(t.Context(), out); err == nil {
			t.Errorf("%s led out of the tree, to %q", out, to)
		}
	}
	list, err := Tree(dir).ReadDir(t.Context(), "d", 2)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := Tree(dir).ReadDir(t.Context(), "d", 1); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("two entries where one is allowed: %v", err)
	}
	if list, err := Tree(dir).ReadDir(t.Context(), "etc", 100); err == nil {
		t.Errorf("a link out of the tree was listed: %v", list)
	}
}

// TestNothingWaitsForAFIFO: a FIFO in the place of a tree or of a directory in it is refused. A plain open would wait for a
// writer that never comes.
func TestNothingWaitsForAFIFO(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	for what, use := range map[string]func() error{
		"a link in it":     func() error { _, err := Tree(fifo).Readlink(t.Context(), "x"); return err },
		"its entries":      func() error { _, err := Tree(fifo).ReadDir(t.Context(), ".", 10); return err },
		"a directory":      func() error { _, err := Tree(dir).ReadDir(t.Context(), "fifo", 10); return err },
		"its file system":  func() error { return Sync(fifo) },
		"a file":           func() error { _, _, err := Tree(dir).ReadFile(t.Context(), "fifo", 10); return err },
		"a directory's fd": func() error { _, err := OpenTree(fifo); return err },
	} {
		done := make(chan error, 1)
		go func() { done <- use() }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: a FIFO was read", what)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: waits for a writer of the FIFO", what)
			fd, err := unix.Open(fifo, unix.O_RDWR|unix.O_NONBLOCK, 0) // ends the wait
			must(t, err)
			<-done
			must(t, unix.Close(fd))
		}
	}
}

// TestExists: a tree is gone only if it is certain that no directory is there.
func TestExists(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	for name, want := range map[string]bool{"": true, "gone": false, "file": false, "file/x": false, "loop": false, "loop/x": true} {
		if got := Tree(filepath.Join(dir, name)).Exists(t.Context()); got != want {
			t.Errorf("%q exists: %v, want %v", name, got, want)
		}
	}
}
