package jail

import (
	"errors"
	"path"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symlinks a path may lead through; the kernel has the same limit.
const maxLinks = 40

// lead is the result of resolving a path of the box.
type lead struct {
	// path is the part that exists, with symlinks resolved; rest holds the missing names below it.
	path string
	rest []string
	st   unix.Stat_t
	// links are the symlinks on the way that processes of the box could replace.
	links []string
	loop  bool
}

func (p *lead) isDir() bool { return p.st.Mode&unix.S_IFMT == unix.S_IFDIR }

// where returns the whole path, with its missing names.
func (p *lead) where() string { return path.Join(p.path, path.Join(p.rest...)) }

// follow resolves an absolute path below the new root, including its last name.
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

// split returns a path's names, without empty ones and ".".
func split(p string) []string {
	var out []string
	for name := range strings.SplitSeq(p, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}

// look stores in p the stat of a path that has no symlinks in it.
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

// markSec and markNsec are the modification time of a placeholder. An empty file with this time
// is a placeholder, even if boxd was killed before it reported the file. The time is in 1970, so
// that no clock gives it to another file.
const markSec, markNsec = 1, 481516234

// IsMark reports whether a modification time is that of a placeholder file.
func IsMark(sec, nsec int64) bool { return sec == markSec && nsec == markNsec }

func marks() []unix.Timespec {
	t := unix.Timespec{Sec: markSec, Nsec: markNsec}
	return []unix.Timespec{t, t}
}

// placeholder makes an empty directory or file that belongs to the tools' user. A file appears
// either complete, with its mark, or not at all.
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
	name := path.Base(at)
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
	// The file system has no nameless files, or the kernel cannot name them: create by name.
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
	times := marks()
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
	return unix.UtimesNanoAt(parent, name, marks(), unix.AT_SYMLINK_NOFOLLOW)
}
