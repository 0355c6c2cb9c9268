//go:build unix

package tree

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

const (
	// openDirs is how many directories of the tree a removal has open at once. In a deeper tree it closes the
	// upper ones, and opens them again later through "..".
	openDirs = 48
	// nameBatch is how many names of a directory a removal reads at once.
	nameBatch = 256
	// maxLevels is how deep the directories of a tree may be nested that RemoveAll can remove.
	maxLevels = 1 << 16
	// maxFailed is how many entries a removal may fail to remove before it gives up.
	maxFailed = 1000
)

// removeAll removes an entry of a directory and everything below it.
func removeAll(dir *os.Root, name string) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return RemoveAll(int(f.Fd()), name)
}

// RemoveAll removes the entry name of an open directory and everything below it. Symlinks are
// removed, never followed. An entry that vanishes meanwhile is not an error. If an entry cannot be
// removed, RemoveAll still removes the others, and returns the first error. Memory and open files
// are bounded, however deep the tree is and however many entries a directory has.
func RemoveAll(dir int, name string) error {
	err := removeEntry(dir, name)
	if !inUse(err) {
		return err
	}
	r := &remover{dir: dir}
	defer r.close()
	switch enterErr := r.enter(dir, name); {
	case errors.Is(enterErr, syscall.ENOTDIR), errors.Is(enterErr, syscall.ELOOP):
		return err // the entry is a file in use, such as a mount point, and not a directory
	case enterErr != nil:
		return ended(enterErr)
	}
	for len(r.levels) > 0 {
		if err := r.step(&r.levels[len(r.levels)-1]); err != nil {
			return errors.Join(r.first, err)
		}
	}
	return r.first
}

// removeEntry removes a file or an empty directory.
func removeEntry(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	rmErr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	switch {
	case rmErr == nil || errors.Is(rmErr, syscall.ENOENT):
		return nil
	case errors.Is(rmErr, syscall.ENOTDIR):
		return err
	}
	return rmErr
}

// inUse reports whether err means that an entry was not removed because it is a directory with entries or
// a mount is at its path.
func inUse(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.EBUSY)
}

// remover removes one tree, directory after directory.
type remover struct {
	dir int
	// levels are the directories from the top of the tree down to the one that is being emptied.
	levels []level
	// first is the first error, failed the number of entries that could not be removed.
	first  error
	failed int
}

// level is one directory of the tree.
type level struct {
	name     string
	dev, ino uint64
	// list is nil while the directory is closed.
	list *os.File
	// names were read from list and have not been handled yet.
	names []string
	// removed is how many entries were removed since the reading of the directory began.
	removed int
	// kept are the entries that could not be removed.
	kept map[string]bool
}

func (r *remover) close() {
	for _, l := range r.levels {
		_ = l.list.Close() // list may be nil; Close then only returns an error
	}
}

// open opens a directory. It follows no symlink.
func open(dir int, name string) (l level, err error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return l, err
	}
	l = level{name: name, list: os.NewFile(uintptr(fd), name)}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = l.list.Close()
		return l, err
	}
	l.dev, l.ino = uint64(st.Dev), st.Ino
	return l, nil
}

// enter opens a directory, which is emptied next.
func (r *remover) enter(dir int, name string) error {
	if len(r.levels) == maxLevels {
		return holdfast.Errorf(holdfast.KindTooLarge, "tree.remove", "the directories to remove are nested more than %d deep", maxLevels)
	}
	l, err := open(dir, name)
	if err != nil {
		return err
	}
	if n := len(r.levels) - openDirs; n >= 0 && r.levels[n].list != nil {
		above := &r.levels[n]
		_ = above.list.Close()
		above.list, above.names, above.removed = nil, nil, 0
	}
	r.levels = append(r.levels, l)
	return nil
}

// step removes entries of the directory l until it has to enter a directory in l, or l is done.
func (r *remover) step(l *level) error {
	dir := int(l.list.Fd())
	for {
		if len(l.names) == 0 {
			names, err := l.list.Readdirnames(nameBatch)
			if len(names) == 0 {
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				if l.removed == 0 {
					return r.leave()
				}
				// A file system may leave out entries while others are removed: read the directory again.
				if _, err := l.list.Seek(0, io.SeekStart); err != nil {
					return err
				}
				l.removed = 0
				continue
			}
			l.names = names
		}
		name := l.names[0]
		l.names = l.names[1:]
		if l.kept[name] {
			continue
		}
		err := removeEntry(dir, name)
		if inUse(err) {
			enterErr := r.enter(dir, name)
			if enterErr == nil {
				return nil
			}
			if !errors.Is(enterErr, syscall.ENOTDIR) && !errors.Is(enterErr, syscall.ELOOP) {
				err = enterErr
			}
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			if err := r.keep(l, name, err); err != nil {
				return err
			}
			continue
		}
		l.removed++
	}
}

// keep records an entry of l that could not be removed. It returns err if more than maxFailed entries could not be.
func (r *remover) keep(l *level, name string, err error) error {
	if r.first == nil {
		r.first = err
	}
	if r.failed++; r.failed > maxFailed {
		return err
	}
	if l.kept == nil {
		l.kept = map[string]bool{}
	}
	l.kept[name] = true
	return nil
}

// leave removes the last directory, which has been emptied, and goes on in the one above it.
func (r *remover) leave() error {
	l := r.levels[len(r.levels)-1]
	r.levels = r.levels[:len(r.levels)-1]
	defer l.list.Close()
	if len(r.levels) == 0 {
		if len(l.kept) > 0 {
			return nil // r.first has the error of an entry that could not be removed
		}
		return ended(unix.Unlinkat(r.dir, l.name, unix.AT_REMOVEDIR))
	}
	above := &r.levels[len(r.levels)-1]
	if above.list == nil {
		up, err := open(int(l.list.Fd()), "..")
		if err != nil {
			return err
		}
		if up.dev != above.dev || up.ino != above.ino {
			_ = up.list.Close()
			return syscall.EBUSY // the directory was moved meanwhile, so ".." is another one
		}
		above.list = up.list
	}
	var err error = syscall.ENOTEMPTY
	if len(l.kept) == 0 {
		err = ended(unix.Unlinkat(int(above.list.Fd()), l.name, unix.AT_REMOVEDIR))
	}
	if err != nil {
		return r.keep(above, l.name, err)
	}
	above.removed++
	return nil
}

// ended returns the error of a removal; nil if the entry had vanished.
func ended(err error) error {
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
