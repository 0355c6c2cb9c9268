package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// replacements are what programs do to files of the host that boxes see: each does it once
// more, and at the end of each the path is there again, under root.
var replacements = map[string]func(root string, i int) error{
	"a file, by rename": func(root string, i int) error {
		return rewrite(filepath.Join(root, "etc", "ld.so.cache"), i)
	},
	"a file, taken away and put back": func(root string, i int) error {
		name := filepath.Join(root, "etc", "mime.types")
		return errors.Join(os.Remove(name), rewrite(name, i))
	},
	"a file that is copied": func(root string, i int) error {
		name := filepath.Join(root, "etc", "nsswitch.conf")
		return errors.Join(os.Remove(name), rewrite(name, i))
	},
	"the directory of the CA bundle": func(root string, i int) error {
		name, next := filepath.Join(root, "etc", "ssl", "certs"), filepath.Join(root, "etc", fmt.Sprint("next", i))
		err := errors.Join(os.Mkdir(next, 0o755), os.WriteFile(filepath.Join(next, "ca.crt"), []byte("ca"), 0o644))
		old := filepath.Join(root, "etc", fmt.Sprint("old", i))
		return errors.Join(err, os.Rename(name, old), os.Rename(next, name), os.RemoveAll(old))
	},
	"a directory, by a link": func(root string, i int) error {
		name, to := filepath.Join(root, "extra"), filepath.Join(root, "extra-to")
		return errors.Join(os.Remove(name), os.Mkdir(name, 0o755), os.Remove(name), os.Symlink(to, name))
	},
	"a directory, by a file": func(root string, i int) error {
		name := filepath.Join(root, "etc", "fonts")
		return errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o644), os.Remove(name), os.Mkdir(name, 0o755))
	},
}

func rewrite(name string, i int) error {
	next := fmt.Sprint(name, i)
	return errors.Join(os.WriteFile(next, []byte("content"), 0o644), os.Rename(next, name))
}

// TestBoxStartsWhileHostFilesAreReplaced: while files and directories that boxes see of
// the host are replaced twenty times, in whatever way, every box starts and every boot
// gets ready, and none misses what was away for a moment.
func TestBoxStartsWhileHostFilesAreReplaced(t *testing.T) {
	testkit.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can see another /etc than the machine's")
	}
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			dir, root := home(t), hostTree(t)
			d := open(t, dir, func(c *local.Config) { c.RootDir = root })
			start := func(name string) {
				t.Helper()
				s := spec(dir, name)
				info, err := d.Ensure(t.Context(), s)
				if err != nil {
					t.Fatalf("box %s: %v", name, err)
				}
				for _, see := range []string{"etc/ld.so.cache", "etc/mime.types", "etc/nsswitch.conf", "etc/ssl/certs", "etc/fonts", "extra"} {
					if _, err := os.Lstat(filepath.Join("/proc", strconv.Itoa(info.PID), "root", see)); err != nil {
						t.Errorf("box %s misses something: %v", name, err)
					}
				}
				if err := d.Remove(t.Context(), s.Box); err != nil {
					t.Fatal(err)
				}
			}
			start("before")
			n := 0
			// A package manager is at it for a moment, while something is started.
			meanwhile := func(start func()) {
				var replacing sync.WaitGroup
				replacing.Go(func() {
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for range 20 {
						n++
						if err := replace(root, n); err != nil {
							t.Error(err)
						}
						<-tick.C
					}
				})
				defer replacing.Wait()
				start()
			}
			for i := range 4 {
				meanwhile(func() { start(fmt.Sprint("replaced-", i)) })
			}
			meanwhile(func() {
				if err := errors.Join(d.Prewarm(t.Context(), 2), d.Prewarm(t.Context(), 0)); err != nil {
					t.Errorf("ready boots: %v", err)
				}
			})
		})
	}
}

// TestBoxStartsWithoutAFileThatIsGone: what stays away keeps no box from its start.
func TestBoxStartsWithoutAFileThatIsGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can see another /etc than the machine's")
	}
	dir, root := home(t), hostTree(t)
	d := open(t, dir, func(c *local.Config) { c.RootDir = root })
	up(t, d, spec(dir, "with"))
	if err := os.Remove(filepath.Join(root, "etc", "mime.types")); err != nil {
		t.Fatal(err)
	}
	up(t, d, spec(dir, "without"))
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
	for _, dir := range []string{"etc/ssl/certs", "etc/fonts", "extra-to"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"ld.so.cache", "mime.types", "nsswitch.conf"} {
		if err := os.WriteFile(filepath.Join(root, "etc", file), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "extra-to"), filepath.Join(root, "extra")); err != nil {
		t.Fatal(err)
	}
	return root
}
