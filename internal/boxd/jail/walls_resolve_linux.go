package jail

import (
	"errors"
	"path"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boxd/mark"
)

// maxLinks is how many symlinks a path may lead through; the kernel has the same limit.
const maxLinks = 40

// lead is the result of resolving a path of the box.
type lead struct {
	// path is the part of the path that exists, with symlinks resolved; rest are the names after it, which do not exist.
	path string
	rest []string
	st   unix.Stat_t
	// links are the symlinks on the way that are in a tree, so that processes of the box could replace them.
	links []string
	loop  bool
}

func (p *lead) isDir() bool { return p.st.Mode&unix.S_IFMT == unix.S_IFDIR }

// where returns the resolved path, including the names that do not exist.
func (p *lead) where() string { return path.Join(p.path, path.Join(p.rest...)) }

// follow resolves an absolute path in the new root. It also follows a symlink at the end of the path.
func (w *walls) follow(p string) (lead, error) {
	out := lead{path: "/"}
	if err := w.look(&out, "/"); err != nil {
		return out, err
	}
	rest, links := split(p), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			if err := w.look(&out, path.Dir(out.path)); err != nil {
				return out, err
			}
			continue
		}
		next := lead{}
		at := path.Join(out.path, name)
		err := w.look(&next, at)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			out.rest = append([]string{name}, rest...)
			return out, nil
		case err != nil:
			return out, err
		case next.st.Mode&unix.S_IFMT != unix.S_IFLNK:
			out.path, out.st = at, next.st
			continue
		}
		if w.grounds.tree(at) != "" {
			out.links = append(out.links, at)
		}
		if links++; links > maxLinks {
			out.loop = true
			return out, nil
		}
		target, err := w.readlink(at)
		if err != nil {
			return out, err
		}
		if strings.HasPrefix(target, "/") {
			if err := w.look(&out, "/"); err != nil {
				return out, err
			}
		}
		rest = append(split(target), rest...)
	}
	return out, nil
}

// split returns the names of a path. It leaves out empty names and ".".
func split(p string) []string {
	var out []string
	for name := range strings.SplitSeq(p, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}

// look sets the path and the stat of p to those of a path that leads through no symlink.
func (w *walls) look(p *lead, at string) error {
	if at == "/" {
		p.path = at
		return unix.Fstat(w.root, &p.st)
	}
	fd, err := w.at(at)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p.path = at
	return unix.Fstat(fd, &p.st)
}

func (w *walls) readlink(at string) (string, error) {
	fd, err := w.at(at)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	return string(buf[:max(n, 0)]), err
}

// placeholder makes an empty directory or file that has the modification time of a placeholder and usually belongs to
// the tools' user. If the file system allows it, a file appears with this time already set.
func (w *walls) placeholder(at string, dir bool) error {
	if w.maker > 0 {
		return asFileUser(w.maker, func() error { return makePlaceholder(w, at, dir) })
	}
	return makePlaceholder(w, at, dir)
}

func makePlaceholder(w *walls, at string, dir bool) error {
	parent, err := w.at(path.Dir(at))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return mark.Keep(parent, func() error { return makeEmpty(w, parent, path.Base(at), dir) })
}

// makeEmpty makes a placeholder in the open directory parent.
func makeEmpty(w *walls, parent int, name string, dir bool) error {
	if dir {
		if err := unix.Mkdirat(parent, name, 0o755); err != nil {
			return err
		}
		return w.mark(parent, name)
	}
	dirfd, err := unix.Openat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	fd, err := unix.Openat(dirfd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = w.markFile(fd)
		if err == nil {
			err = unix.Linkat(fd, "", dirfd, name, unix.AT_EMPTY_PATH)
		}
		unix.Close(fd)
	}
	if err == nil || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EROFS) {
		return err
	}
	// The file system cannot make files without a name, or they cannot get a name here: create the file by its name.
	if fd, err = unix.Openat(dirfd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600); err != nil {
		return err
	}
	defer unix.Close(fd)
	return w.markFile(fd)
}

func (w *walls) markFile(fd int) error {
	if w.tool >= 0 {
		if err := unix.Fchown(fd, w.tool, w.tool); err != nil {
			return err
		}
	}
	times := mark.Times()
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0)
	runtime.KeepAlive(times)
	if errno != 0 {
		return errno
	}
	return nil
}

func (w *walls) mark(parent int, name string) error {
	if w.tool >= 0 {
		if err := unix.Fchownat(parent, name, w.tool, w.tool, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(parent, name, mark.Times(), unix.AT_SYMLINK_NOFOLLOW)
}
