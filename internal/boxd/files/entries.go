package files

import (
	"errors"

	"golang.org/x/sys/unix"
)

// kind is the type of a directory entry, as far as file operations distinguish types.
type kind uint8

const (
	kindOther kind = iota
	kindFile
	kindDir
	kindLink
)

// kindOfMode returns the kind of a file from the mode in its stat.
func kindOfMode(mode uint32) kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return kindFile
	case unix.S_IFDIR:
		return kindDir
	case unix.S_IFLNK:
		return kindLink
	}
	return kindOther
}

// entry is one name of a directory.
type entry struct {
	name string
	kind kind
}

func (e entry) cost() int { return len(e.name) + 32 }

// lister reads an open directory in batches. It uses only the descriptor. os.File would use a path
// to look up each kind that the file system does not report.
type lister struct {
	fd  int
	buf [8 << 10]byte
}

// next returns the next entries, in no particular order; none at the end of the directory.
func (l *lister) next() ([]entry, error) {
	for {
		n, err := unix.ReadDirent(l.fd, l.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return nil, err
		}
		out := l.parse(l.buf[:n])
		for i := range out {
			if out[i].kind == kindUnsaid {
				out[i].kind = l.ask(out[i].name)
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
}

// kindUnsaid marks an entry whose kind the file system does not report.
const kindUnsaid kind = 255

func (l *lister) ask(name string) kind {
	var st unix.Stat_t
	if err := unix.Fstatat(l.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return kindOther
	}
	return kindOfMode(uint32(st.Mode))
}

// statAt returns the stat of a name in an open directory, without following a symlink.
func statAt(dir int, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// linkAt returns the target of a symlink in an open directory. If name is empty, dir is a
// descriptor of the symlink itself.
func linkAt(dir int, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
