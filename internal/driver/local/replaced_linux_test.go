package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestBoxStartsWhileHostFilesAreReplaced: while a file that each box mounts is replaced,
// or taken away and put back, again and again, every box starts.
func TestBoxStartsWhileHostFilesAreReplaced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can see another /etc than the machine's")
	}
	dir := home(t)
	root := hostTree(t)
	cache := filepath.Join(root, "etc", "ld.so.cache")
	d := open(t, dir, func(c *local.Config) { c.RootDir = root })
	done := make(chan struct{})
	var replacing sync.WaitGroup
	replacing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if i%2 == 1 {
				_ = os.Remove(cache) // as an unpacker does that does not rename
			}
			next := fmt.Sprint(cache, i)
			if err := os.WriteFile(next, []byte("cache"), 0o644); err != nil {
				t.Error(err)
				return
			}
			if err := os.Rename(next, cache); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer replacing.Wait()
	defer close(done)
	for i := range 50 {
		s := spec(dir, fmt.Sprintf("replaced-%d", i))
		if _, err := d.Ensure(t.Context(), s); err != nil {
			t.Fatalf("box %d: %v", i, err)
		}
		if err := d.Remove(t.Context(), s.Box); err != nil {
			t.Fatal(err)
		}
	}
}

// hostTree is a root directory that shows the machine's programs, with an /etc of its own.
func hostTree(t *testing.T) string {
	t.Helper()
	root := testkit.BaseDir(t)
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64"} {
		from, at := filepath.Join("/", name), filepath.Join(root, name)
		if to, err := os.Readlink(from); err == nil {
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}
