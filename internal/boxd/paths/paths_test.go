//go:build linux

package paths

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func look(t testing.TB, fd int, err error) string {
	t.Helper()
	if err != nil {
		var no unix.Errno
		if !errors.As(err, &no) {
			t.Fatal(err)
		}
		return unix.ErrnoName(no)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// TestMagicLinksAreNotFollowed: links that only the kernel can follow lead nowhere, by
// any path; usual links work.
func TestMagicLinksAreNotFollowed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(to string) string {
		name := filepath.Join(dir, "link")
		_ = os.Remove(name)
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	fd := int(held.Fd())
	for _, to := range []string{
		fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/self/fd/%d/file", fd), fmt.Sprintf("/proc/%d/fd/%d/../x", os.Getpid(), fd),
		fmt.Sprintf("/proc/thread-self/fd/%d/file", fd), "/proc/self/root", "/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/self/exe",
		"/proc/thread-self/root/", "/proc/self/task/../root", "/proc/self/ns/mnt", "/dev/fd/0",
	} {
		for _, path := range []string{to, link(to), filepath.Join(dir, "no", "..", "link")} {
			got, err := Open(path, Way)
			if err == nil {
				_ = unix.Close(got)
				t.Errorf("%s was opened", path)
			} else if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOENT) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if got, err := Open(to, Way); err == nil || !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %d, %v", to, got, err)
		}
	}
	for to, want := range map[string]string{"file": "/file", "./../" + filepath.Base(dir) + "/file": "/file", dir: ""} {
		got, err := Open(link(to), Way)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		if at, err := Where(got); err != nil || at != dir+want {
			t.Errorf("%s leads to %s, %v", to, at, err)
		}
		_ = unix.Close(got)
	}
}

// TestBelowTakesNoLink: neither as the last name nor on the way.
func TestBelowTakesNoLink(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.MkdirAll(dir+"/a/b", 0o700), os.WriteFile(dir+"/a/b/f", nil, 0o600), os.Symlink("a", dir+"/l"), os.Symlink("f", dir+"/a/b/g")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := unix.Open(dir, Way|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	for rel, ok := range map[string]bool{"a/b/f": true, ".": true, "a/b/": true, "l/b/f": false, "a/b/g": false, "..": false, "a/../../x": false, "/etc": false} {
		fd, err := Below(root, rel, unix.O_RDONLY)
		if err == nil {
			_ = unix.Close(fd)
		}
		if (err == nil) != ok {
			t.Errorf("%s: %v", rel, err)
		}
	}
}

// jailed opens paths on a thread whose root is another directory: the resolver must
// agree with the kernel there. It needs root.
type jailed struct{ work chan func() }

func newJailed(t testing.TB, root string) *jailed {
	j := &jailed{work: make(chan func())}
	begun := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		begun <- errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(root), unix.Chdir("/"))
		for fn := range j.work {
			fn()
		}
	}()
	if err := <-begun; err != nil {
		close(j.work)
		if errors.Is(err, unix.EPERM) {
			return nil
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { close(j.work) })
	return j
}

func (j *jailed) open(path string) (fd int, err error) {
	done := make(chan struct{})
	j.work <- func() {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		close(done)
	}
	<-done
	return fd, err
}

// plant makes a tree from a program of instructions: each names a path below root by
// two letters, and what to make there. A link of the
// tree that leads out of root is not followed.
func plant(root *os.Root, program string) {
	name := func(c byte) string { return string('a' + c%5) }
	for len(program) >= 4 {
		p := name(program[0])
		if program[0]&0x80 != 0 {
			p = filepath.Join(p, name(program[1]))
		}
		switch program[2] % 4 {
		case 0:
			_ = root.Mkdir(p, 0o755)
		case 1:
			_ = root.WriteFile(p, nil, 0o644)
		default:
			parts := []string{"/", "..", name(program[3]), name(program[3] >> 3), ".", "../..", "/../" + name(program[1])}
			to := parts[int(program[3])%len(parts)] + "/" + parts[int(program[3]>>2)%len(parts)]
			_ = root.Symlink(to, p)
		}
		program = program[4:]
	}
}

// FuzzResolve: in random trees of links, directories and files, every opened file lies
// inside of the root, and is the file that a process with this root finds.
func FuzzResolve(f *testing.F) {
	f.Add("\x00\x00\x00\x00\x80\x01\x02\x05", "/a/b/../a")
	f.Add("\x01\x00\x02\x01\x82\x03\x02\x31\x03\x01\x02\x07", "/b/../../c//d/./e")
	f.Add("\x00\x00\x02\x02", "/a")
	f.Add("\x00\x00\x02\x00\x01\x00\x01\x00", "/a/../../a/b") // a leads to the root, b is a file
	outside := f.TempDir()
	root := filepath.Join(outside, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "a"), nil, 0o644); err != nil {
		f.Fatal(err)
	}
	fd, err := unix.Open(root, Way|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = unix.Close(fd) })
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		f.Fatal(err)
	}
	kernel := newJailed(f, root)
	tree, err := os.OpenRoot(root)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = tree.Close() })
	f.Fuzz(func(t *testing.T, program, path string) {
		if len(program) > 200 || len(path) > 500 || strings.Contains(path, "\x00") || path == "" {
			return
		}
		entries, _ := os.ReadDir(root)
		for _, e := range entries {
			_ = os.RemoveAll(filepath.Join(root, e.Name()))
		}
		plant(tree, program)
		path = "/" + path
		got, err := OpenIn(fd, path, Way)
		if err == nil {
			at, werr := Where(got)
			if werr != nil || at != real && !strings.HasPrefix(at, real+"/") {
				t.Fatalf("%q leads to %s, %v", path, at, werr)
			}
		}
		found := look(t, got, err)
		if kernel == nil {
			return
		}
		want, werr := kernel.open(path)
		if w := look(t, want, werr); found != w {
			t.Fatalf("%q: %s, want %s", path, found, w)
		}
	})
}

// TestEnter: a thread with a root directory of its own opens paths there, other threads do not, and
// after Leave neither does a thread that gets its number.
func TestEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot takes root")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "only-here"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opens := func() bool {
		fd, err := Open("/only-here", Way)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err == nil
	}
	if opens() {
		t.Fatal("the file is in the real root")
	}
	done := make(chan error, 1)
	var inside, after, at bool
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(dir), Enter())
		if err == nil {
			inside = opens()
			fd, oerr := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
			root, rerr := Root(fd)
			if err = errors.Join(oerr, rerr); err == nil {
				_, serr := root.Stat("only-here")
				at = serr == nil
				err = errors.Join(root.Close(), unix.Close(fd))
			}
		}
		Leave()
		after = opens()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !inside || !at || after || opens() {
		t.Errorf("own root: %v, as a Root: %v; after it: %v; elsewhere: %v", inside, at, after, opens())
	}
}
