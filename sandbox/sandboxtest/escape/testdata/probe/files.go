package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func fileVerbs() map[string]verb {
	return map[string]verb{
		"read":    func(a []string) (string, error) { return head(a[0]) },
		"ls":      list,
		"symlink": func(a []string) (string, error) { return through(os.Symlink, a[0], a[1]) },
		"link":    func(a []string) (string, error) { return through(os.Link, a[0], a[1]) },
		"create":  create,
		"rewrite": rewrite,
		"open":    func(a []string) (string, error) { return "", closing(os.OpenFile(a[0], os.O_RDWR, 0)) },
		"map":     mapShared,
		"climb":   climb,
		"handle":  handle,
		"mknod":   mknod,
		"find":    find,
		"setcap":  setcap,
		"swap":    swap,
	}
}

// head returns the beginning of a file. It never blocks on special files.
func head(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, 120)
	n, err := f.Read(buf)
	if n == 0 && err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func list(a []string) (string, error) {
	entries, err := os.ReadDir(a[0])
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, ","), err
}

func closing(f *os.File, err error) error {
	if err == nil {
		err = f.Close()
	}
	return err
}

// through makes a link to a file and reads it by that name.
func through(link func(string, string) error, to, name string) (string, error) {
	_ = os.Remove(name)
	if err := link(to, name); err != nil {
		return "", err
	}
	defer os.Remove(name)
	return head(name)
}

// create makes a file in a place where that should be impossible, and removes it again.
func create(a []string) (string, error) {
	f, err := os.OpenFile(a[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("x")
	return "", errors.Join(err, f.Close(), os.Remove(a[0]))
}

// mapShared writes to a file that is open for reading alone, through a mapping of it.
func mapShared(a []string) (string, error) {
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	if b, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		b[0] = 'x'
		return "mapped", unix.Munmap(b)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return "", err
	}
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return "", err
	}
	b[0] = 'x'
	return "protected", unix.Munmap(b)
}

// rewrite writes a kernel setting with its current value: the attempt is to be able to write it.
func rewrite(a []string) (string, error) {
	f, err := os.OpenFile(a[0], os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, 4096)
	n, err := f.Read(buf)
	if err != nil {
		return "", err
	}
	if _, err := f.WriteAt(buf[:n], 0); err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(buf[:n])), nil
}

// climb reads a file by a path that begins with more ".." than there are directories.
func climb(a []string) (string, error) {
	return head(strings.Repeat("../", 64) + strings.TrimPrefix(a[0], "/"))
}

// handle gets a file's handle and opens the file by the handle, without resolving a path.
func handle(a []string) (string, error) {
	fh, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
	if err != nil {
		return "", fmt.Errorf("name_to_handle_at: %w", err)
	}
	_ = mount
	dir, err := unix.Open(filepath.Dir(a[0]), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	fd, err := unix.OpenByHandleAt(dir, fh, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	return head(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// mknod creates a device node and opens it.
func mknod(a []string) (string, error) {
	path := a[0]
	_ = os.Remove(path)
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return "", err
	}
	defer os.Remove(path)
	return "", closing(os.OpenFile(path, os.O_RDWR, 0))
}

// find searches the whole visible file tree for a file of that name.
func find(a []string) (string, error) {
	looked := 0
	var found []string
	_ = filepath.WalkDir(a[1], func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return filepath.SkipDir
		}
		looked++
		if d.IsDir() && (path == "/proc" || path == "/usr") {
			return filepath.SkipDir
		}
		if d.Name() == a[0] {
			found = append(found, path)
		}
		return nil
	})
	if len(found) == 0 {
		return "", errors.New("none")
	}
	return strings.Join(found, ","), nil
}

// setcap writes a file capability. Version 2 needs the right over the host's own
// user namespace, version 3 names the root of another one.
func setcap(a []string) (string, error) {
	if err := os.WriteFile(a[0], nil, 0o755); err != nil {
		return "", err
	}
	defer os.Remove(a[0])
	data := [5]uint32{0x02000001, 1 << unix.CAP_SYS_ADMIN, 0, 0, 0}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&data)), 20)
	return "", unix.Setxattr(a[0], "security.capability", raw, 0)
}

// swap exchanges two names continuously until it is killed, so that the target of a path changes
// all the time.
func swap(a []string) (string, error) {
	fmt.Println("swapping")
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_EXCHANGE); err != nil {
			return "", err
		}
	}
}
