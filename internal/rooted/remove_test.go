package rooted

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

func gone(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
}

func TestRemoveAllHostileTree(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	must(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
	must(t, os.Symlink(out, filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "a/link")))
	must(t, os.Symlink("..", filepath.Join(dir, "a/b/up")))
	must(t, os.Link(filepath.Join(out, "secret"), filepath.Join(dir, "hard")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o000))
	for i := range 600 {
		must(t, os.WriteFile(filepath.Join(dir, "a/b", fmt.Sprintf("f\n%d\xff", i)), nil, 0o000))
	}
	must(t, os.Chmod(filepath.Join(dir, "a/b"), 0o000))
	must(t, os.Chmod(filepath.Join(dir, "a"), 0o500))
	must(t, RemoveAll(dir))
	gone(t, dir)
	check()
	must(t, RemoveAll(dir))
	must(t, os.Symlink(out, dir))
	must(t, RemoveAll(dir))
	gone(t, dir)
	check()
	must(t, os.WriteFile(dir, nil, 0o644))
	must(t, RemoveAll(dir))
	gone(t, dir)
}

// TestRemoveAllDeep: a tree deeper than any path is long and than there are descriptors.
func TestRemoveAllDeep(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("deep trees are handled on Linux only")
		return
	}
	dir := filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(dir, 0o755))
	const depth = 1500
	grow(t, dir, "d", depth)
	u, err := DiskUsage(t.Context(), dir, 0)
	must(t, err)
	if u.Entries != 2*depth+1 || u.Partial {
		t.Errorf("usage of a deep tree: %+v", u)
	}
	must(t, RemoveAll(dir))
	gone(t, dir)
}

// grow makes directories of one name in each other, each with a symlink, by descriptor.
func grow(t *testing.T, dir, name string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { unix.Close(fd) }()
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		must(t, unix.Symlinkat("/etc", fd, "link"))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
}

// TestRemoveAllAsOrdinaryUser: what the same user made unreadable goes all the same.
func TestRemoveAllAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("already an ordinary user: TestRemoveAllHostileTree is this test")
		return
	}
	base, err := os.MkdirTemp("/tmp", "hf-rooted")
	must(t, err)
	defer os.RemoveAll(base)
	must(t, os.Chmod(base, 0o777))
	self, err := os.Executable()
	must(t, err)
	bin := filepath.Join(base, "test")
	data, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(bin, data, 0o755))
	cmd := exec.CommandContext(t.Context(), bin, "-test.run", "^(TestRemoveAllHostileTree|TestSeed)$", "-test.v")
	cmd.Env = []string{"TMPDIR=" + base, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = asUser(60_001)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRemoveAllHostileTree") {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

// TestRemoveAllStaysOnItsMount: a mount in the tree is not emptied, and goes
// with the next call once it is unmounted.
func TestRemoveAllStaysOnItsMount(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	must(t, os.MkdirAll(filepath.Join(dir, "m"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	if err := bind(out, filepath.Join(dir, "m")); err != nil {
		t.Logf("no right to mount here, nothing tested: %v", err)
		return
	}
	defer unbind(filepath.Join(dir, "m"))
	u, err := DiskUsage(t.Context(), dir, 0)
	must(t, err)
	if u.Entries != 3 || !u.Partial {
		t.Errorf("usage across a mount: %+v", u)
	}
	wantKind(t, RemoveAll(dir), holdfast.KindConflict, "something is mounted")
	check()
	if _, err := os.Lstat(filepath.Join(dir, "f")); err == nil {
		t.Error("what could be removed was not")
	}
	unbind(filepath.Join(dir, "m"))
	must(t, RemoveAll(dir))
	gone(t, dir)
	check()
}

// TestDiscard: a tree whose removal fails in the middle is wholly gone from its path. What is left elsewhere goes with the
// next call, which changes nothing before that, and which a tree need not be there for.
func TestDiscard(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	must(t, Discard(dir))
	must(t, os.MkdirAll(filepath.Join(dir+Aside, "left"), 0o755)) // a call that was killed leaves this
	must(t, Discard(dir))
	gone(t, dir+Aside)
	must(t, os.MkdirAll(filepath.Join(dir, "m"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	must(t, os.MkdirAll(filepath.Join(dir+Aside, "left"), 0o755))
	must(t, Discard(dir))
	gone(t, dir)
	gone(t, dir+Aside)

	must(t, os.MkdirAll(filepath.Join(dir, "m"), 0o755))
	if err := bind(out, filepath.Join(dir, "m")); err != nil {
		t.Logf("no right to mount here, a removal that fails is not tested: %v", err)
		return
	}
	defer unbind(filepath.Join(dir+Aside, "m"))
	wantKind(t, Discard(dir), holdfast.KindConflict, "something is mounted")
	gone(t, dir)
	must(t, os.MkdirAll(filepath.Join(dir, "new"), 0o755))
	wantKind(t, Discard(dir), holdfast.KindConflict, "something is mounted")
	if _, err := os.Lstat(filepath.Join(dir, "new")); err != nil {
		t.Errorf("a call that failed before its removal: %v", err)
	}
	unbind(filepath.Join(dir+Aside, "m"))
	must(t, bind(out, dir))
	wantKind(t, Discard(dir), holdfast.KindConflict, "something is mounted")
	unbind(dir)
	must(t, Discard(dir))
	gone(t, dir)
	gone(t, dir+Aside)
	check()
}

// TestRemoveAllAgainstRaces: directories swapped for symlinks meanwhile.
func TestRemoveAllAgainstRaces(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	for range 30 {
		dir := filepath.Join(base, "tree")
		for i := range 30 {
			must(t, os.MkdirAll(filepath.Join(dir, fmt.Sprintf("d%d/sub", i)), 0o755))
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				d := filepath.Join(dir, fmt.Sprintf("d%d", i%30))
				_ = os.Rename(d, d+"x")
				_ = os.Symlink(out, d)
			}
		}()
		_ = RemoveAll(dir) // conflict is as good as done
		close(stop)
		<-done
		check()
		must(t, RemoveAll(dir))
		gone(t, dir)
	}
}

func TestDiskUsage(t *testing.T) {
	base := t.TempDir()
	out, _ := outside(t, base)
	must(t, os.WriteFile(filepath.Join(out, "huge"), make([]byte, 4<<20), 0o644))
	dir := filepath.Join(base, "tree")
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a/f"), make([]byte, 1<<20), 0o644))
	must(t, os.Link(filepath.Join(dir, "a/f"), filepath.Join(dir, "a/b/same")))
	must(t, os.Symlink(out, filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(dir, "sparse"), 1<<30))
	u, err := DiskUsage(t.Context(), dir, 0)
	must(t, err)
	if u.Entries != 7 || u.Partial || u.Bytes < 1<<20 || u.Bytes > 3<<19 {
		t.Errorf("usage: %+v", u)
	}
	u, err = DiskUsage(t.Context(), dir, 3)
	must(t, err)
	if !u.Partial || u.Entries > 3 {
		t.Errorf("bounded usage: %+v", u)
	}
	_, err = DiskUsage(t.Context(), filepath.Join(base, "none"), 0)
	wantKind(t, err, holdfast.KindNotFound, "none")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := DiskUsage(ended, dir, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("usage with an ended context: %v", err)
	}
}
