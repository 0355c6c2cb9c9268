//go:build linux

package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// chain makes directories nested n deep below dir, and a file in the deepest.
func chain(t testing.TB, dir string, n int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range n {
		must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	must(t, err)
	must(t, unix.Close(fd))
	must(t, unix.Close(at))
}

// few leaves the process n descriptors more than it has open.
func few(t testing.TB, n int) {
	t.Helper()
	f, err := os.Open("/")
	must(t, err)
	highest := f.Fd()
	must(t, f.Close())
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	low := was
	low.Cur = min(was.Cur, uint64(highest)+uint64(n))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	t.Cleanup(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
}

// TestRemoveAllOfADeepTree: a tree of any depth needs few descriptors.
func TestRemoveAllOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	for _, depth := range []int{1, openDirs - 1, openDirs, openDirs + 1, 600} {
		must(t, os.Mkdir(filepath.Join(dir, "top"), 0o755))
		for _, side := range []string{"a", "b"} {
			must(t, os.Mkdir(filepath.Join(dir, "top", side), 0o755))
			chain(t, filepath.Join(dir, "top", side), depth)
		}
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			root := openRoot(t, dir)
			few(t, 64)
			must(t, removeAll(root, "top"))
			if _, err := root.Lstat("top"); !os.IsNotExist(err) {
				t.Error(err)
			}
			must(t, removeAll(root, "top")) // a name that does not exist
		})
	}
}

// TestRemoveAllGoesOnAfterAFailure: it removes what it can, follows no symlink, and returns the
// first error.
func TestRemoveAllGoesOnAfterAFailure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "top/many/in"), 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "f"), nil, 0o600))
	for n := range 3 * nameBatch {
		must(t, os.WriteFile(filepath.Join(dir, "top/many", fmt.Sprint(n)), nil, 0o600))
	}
	must(t, os.Symlink(outside, filepath.Join(dir, "top/link")))
	must(t, os.MkdirAll(filepath.Join(dir, "top/kept/x/y"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "top/kept/x/y/f"), nil, 0o600))
	root := openRoot(t, dir)
	locked := os.Geteuid() != 0
	if locked {
		must(t, os.Chmod(filepath.Join(dir, "top/kept/x/y"), 0o500))
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "top/kept/x/y"), 0o700) })
		err := removeAll(root, "top")
		if err == nil || holdfast.IsKind(err, holdfast.KindTooLarge) || !strings.Contains(err.Error(), "permission") {
			t.Errorf("a file in a locked directory: %v", err)
		}
		if names, _ := os.ReadDir(filepath.Join(dir, "top")); len(names) != 1 {
			t.Errorf("%v is left", names)
		}
		must(t, os.Chmod(filepath.Join(dir, "top/kept/x/y"), 0o700))
	}
	must(t, removeAll(root, "top"))
	if _, err := os.Stat(filepath.Join(outside, "f")); err != nil {
		t.Error(err)
	}
}

// TestRemoveAllStopsInAMovedTree: a directory that was moved out of the tree does not lead the
// removal to the files around it.
func TestRemoveAllStopsInAMovedTree(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "top"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "other"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "other/keep"), nil, 0o600))
	chain(t, filepath.Join(dir, "top"), openDirs)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	r := &remover{dir: fd}
	defer r.close()
	must(t, r.enter(fd, "top"))
	for r.levels[0].list != nil {
		must(t, r.step(&r.levels[len(r.levels)-1]))
	}
	must(t, os.Rename(filepath.Join(dir, "top/d"), filepath.Join(dir, "other/d")))
	for len(r.levels) > 0 && err == nil {
		err = r.step(&r.levels[len(r.levels)-1])
	}
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other/keep")); err != nil {
		t.Error(err)
	}
}
