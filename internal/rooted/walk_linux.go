package rooted

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// maxOpen is how many directories a walk holds open besides the top: the deepest ones. The walk opens others again,
// starting at the top, when it returns to them.
const maxOpen = 32

// walker is the state of one walk.
type walker struct {
	Bounds
	// resolve holds the openat2 flags with which directories are opened.
	resolve uint64
	// levels are the directories from the top down to the one whose entries the walk returns now.
	levels []level
	// opened is the number of levels with an open descriptor, without the top.
	opened int
	// read is the number of names read so far, with the top. held is about how many bytes of memory the names of the
	// levels need. over is the error of the limit that the tree exceeds.
	read int
	held int
	over error
	skip bool
	// given is the descriptor of the directory that the walk has just passed to the caller; -1 if it passed a file. within
	// is the descriptor of the directory that contains the file which the walk has just passed to the caller.
	given, within int

	buf   *[32 << 10]byte
	names []byte
	st    unix.Statx_t
	yield func(Entry, error) bool
}

// level is a directory that is being walked.
type level struct {
	entry Entry
	path  *parent
	// fd is -1 while the directory is closed.
	fd int
	// names are the directory's entries; those from next on have not been returned yet.
	names []name
	next  int
	// held is what these names add to walker.held.
	held int
}

// walkBuffers keeps the buffers (walker.buf) of ended walks, so that later walks use them again. In a walk of a small
// tree most of the cost would be that of a new buffer.
var walkBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// errStop ends a walk whose caller stopped iterating.
var errStop = errors.New("the caller stopped the walk")

func walk(ctx context.Context, dir string, b Bounds, yield func(Entry, error) bool) error {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return holdfast.Errorf(holdfast.KindConflict, "tree.walk", "the tree %s is not a directory", holdfast.Quote(dir))
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	buf, _ := walkBuffers.Get().(*[32 << 10]byte)
	defer walkBuffers.Put(buf)
	w := &walker{Bounds: b, resolve: beneath, read: 1, given: -1, within: -1, buf: buf, yield: yield}
	if b.Mounts {
		w.resolve &^= unix.RESOLVE_NO_XDEV
	}
	err = w.run(ctx, top)
	for _, l := range w.levels {
		if l.fd >= 0 {
			unix.Close(l.fd)
		}
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// run walks the tree. It closes top.
func (w *walker) run(ctx context.Context, top int) error {
	if err := w.stat(top, &noName[0], unix.AT_EMPTY_PATH); err != nil {
		unix.Close(top)
		return &os.PathError{Op: "stat", Path: ".", Err: err}
	}
	e := w.entry(nil, ".")
	if w.Top != nil {
		if err := w.Top(e); err != nil {
			unix.Close(top)
			return err
		}
	}
	if err := w.enter(ctx, e, nil, top); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := &w.levels[len(w.levels)-1]
		if l.next == len(l.names) {
			w.leave()
			continue
		}
		l.next++
		if err := w.one(ctx, l, l.names[l.next-1]); err != nil {
			return err
		}
	}
	return w.over
}

// give passes an entry to the caller.
func (w *walker) give(e Entry, err error) error {
	w.skip = false
	if err != nil {
		err = fail("tree.walk", err)
	}
	if !w.yield(e, err) {
		return errStop
	}
	return nil
}

// again passes a directory to the caller a second time, with the error why it could not be read to its end.
func (w *walker) again(e Entry, err error) error {
	e.Again = true
	return w.give(e, err)
}

// one passes an entry of the deepest level to the caller, and enters it if it is a directory.
func (w *walker) one(ctx context.Context, l *level, n name) error {
	if err := w.reopen(); err != nil {
		l.next = len(l.names)
		return w.again(l.entry, err)
	}
	// The stat of a directory is made on the descriptor from which it is read, so that both are
	// of the same directory.
	fd, err := -1, error(nil)
	if n.dir && w.goesBelow(l) {
		fd, err = w.open(l.fd, n.text)
	}
	if fd < 0 {
		serr := w.stat(l.fd, unsafe.StringData(n.text), 0)
		switch {
		case errors.Is(serr, syscall.ENOENT):
			return nil
		case serr != nil:
			return w.failed(l, n.text, serr)
		case !w.isDir():
			return w.file(l, n.text)
		case !n.dir && w.goesBelow(l):
			fd, err = w.open(l.fd, n.text)
		}
	}
	if fd >= 0 {
		if err := w.stat(fd, &noName[0], unix.AT_EMPTY_PATH); err != nil {
			unix.Close(fd)
			return w.failed(l, n.text, err)
		}
		e := w.entry(l, n.text)
		if w.Untouched && !w.levels[0].entry.mayRead(e) {
			unix.Close(fd)
			return w.give(e, about(e, "open", syscall.EACCES))
		}
		return w.enter(ctx, e, &parent{in: l.path, name: n.text}, fd)
	}
	e := w.entry(l, n.text)
	switch {
	case errors.Is(err, syscall.EXDEV):
		return w.give(e, isMount(e))
	case err != nil:
		return w.give(e, about(e, "open", err))
	}
	return w.give(e, w.tooDeep(e))
}

// goesBelow reports whether the depth limit allows the walk to enter the directories of a level.
func (w *walker) goesBelow(l *level) bool { return l.entry.Depth+1 < w.Depth }

// file passes the entry of the last stat, which is not a directory, to the caller.
func (w *walker) file(l *level, text string) error {
	e := w.entry(l, text)
	w.within = l.fd
	if mounted(&w.st) && !w.Mounts {
		return w.give(e, isMount(e))
	}
	return w.give(e, nil)
}

// mounted reports whether a stat is of the root of a mount.
func mounted(st *unix.Statx_t) bool {
	return st.Attributes_mask&st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// enter passes a directory to the caller and reads its names. It takes ownership of fd.
func (w *walker) enter(ctx context.Context, e Entry, path *parent, fd int) error {
	w.given = fd
	err := w.give(e, nil)
	w.given = -1
	if err != nil || w.skip {
		unix.Close(fd)
		return err
	}
	if w.opened == maxOpen {
		for i := 1; i < len(w.levels); i++ {
			if l := &w.levels[i]; l.fd >= 0 {
				unix.Close(l.fd)
				l.fd = -1
				w.opened--
				break
			}
		}
	}
	// Use again the memory for names of a level that the walk has left.
	n := len(w.levels)
	w.levels = slices.Grow(w.levels, 1)[:n+1]
	l := &w.levels[n]
	*l = level{entry: e, path: path, fd: fd, names: l.names[:0]}
	if n > 0 {
		w.opened++
	}
	err = w.list(ctx, l)
	if err == nil || errors.Is(err, errStop) || ctx.Err() != nil {
		return err
	}
	return w.again(e, about(e, "read", err))
}

// leave closes the deepest level.
func (w *walker) leave() {
	n := len(w.levels) - 1
	if l := &w.levels[n]; l.fd >= 0 {
		unix.Close(l.fd)
		l.fd = -1
		if n > 0 {
			w.opened--
		}
	}
	w.held -= w.levels[n].held
	w.levels = w.levels[:n]
}

// list reads the names of a directory, as many as the limit allows.
func (w *walker) list(ctx context.Context, l *level) error {
	w.names = w.names[:0]
	err := w.readNames(ctx, l)
	// All names share one string. The byte before each name is its type, and the byte after it is
	// a NUL, which system calls need.
	for text := string(w.names); len(text) > 0; {
		end := strings.IndexByte(text[1:], 0) + 1
		l.names = append(l.names, name{text: text[1:end], dir: text[0] == unix.DT_DIR})
		text = text[end+1:]
	}
	if !w.Unordered {
		slices.SortFunc(l.names, compareNames)
	}
	return err
}

func (w *walker) readNames(ctx context.Context, l *level) error {
	for ctx.Err() == nil {
		n, err := unix.Getdents(l.fd, w.buf[:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for b := w.buf[:n]; len(b) > 0; {
			text, kind, size := dirent(b)
			if size == 0 {
				return syscall.EIO
			}
			b = b[size:]
			switch {
			case len(text) == 0, string(text) == ".", string(text) == "..":
				continue
			case w.read == w.Entries:
				w.over = w.tooMany()
				return nil
			}
			w.read++
			if w.Unordered && kind != unix.DT_DIR {
				if err := w.early(l, text); !errors.Is(err, syscall.EISDIR) {
					if err != nil {
						return err
					}
					continue
				}
				kind = unix.DT_DIR
			}
			n := len(text) + nameBytes
			if w.held+n > w.mostHeld() {
				w.over = w.tooLong()
				return nil
			}
			l.held, w.held = l.held+n, w.held+n
			w.names = append(append(append(w.names, kind), text...), 0)
		}
	}
	return ctx.Err()
}

// early passes a file to the caller while the walk still reads the names of the file's directory. It returns EISDIR if
// the entry is a directory. In memory, text must be followed by a NUL.
func (w *walker) early(l *level, text []byte) error {
	switch err := w.stat(l.fd, &text[0], 0); {
	case errors.Is(err, syscall.ENOENT):
		return nil
	case err != nil:
		return w.failed(l, string(text), err)
	case w.isDir():
		return syscall.EISDIR
	}
	return w.file(l, string(text))
}

// dirent parses the first record of getdents64: inode and offset of 8 bytes each, the length of
// the record, a type, and a name that ends with a NUL.
func dirent(b []byte) (text []byte, kind byte, size int) {
	const head = 19
	if len(b) <= head {
		return nil, 0, 0
	}
	size = int(binary.NativeEndian.Uint16(b[16:]))
	if size <= head || size > len(b) {
		return nil, 0, 0
	}
	end := bytes.IndexByte(b[head:size], 0)
	if end < 0 {
		return nil, 0, 0
	}
	return b[head : head+end], b[18], size
}

// open opens the directory text in the open directory dir.
func (w *walker) open(dir int, text string) (int, error) {
	return openResolved(dir, text, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, w.resolve)
}

// reopen opens the deepest level again, if it was closed to save descriptors. With it, it opens those levels above to
// which the walk returns next.
func (w *walker) reopen() error {
	last := len(w.levels) - 1
	if w.levels[last].fd >= 0 {
		return nil
	}
	at := max(1, last-maxOpen/2)
	fd, err := w.fromTop(w.levels[at].path)
	for ; err == nil; at++ {
		l := &w.levels[at]
		if err = w.stat(fd, &noName[0], unix.AT_EMPTY_PATH); err == nil {
			if now := w.entry(nil, ""); now.Dev != l.entry.Dev || now.Ino != l.entry.Ino {
				err = syscall.ESTALE
			}
		}
		if err != nil {
			unix.Close(fd)
			break
		}
		l.fd = fd
		if w.opened++; at == last {
			return nil
		}
		fd, err = w.open(fd, w.levels[at+1].path.name)
	}
	if !Absent(err) && !errors.Is(err, syscall.ESTALE) && !errors.Is(err, syscall.ELOOP) && !errors.Is(err, syscall.EXDEV) {
		return about(w.levels[last].entry, "open", err)
	}
	return holdfast.Errorf(holdfast.KindConflict, "tree.walk", "the directory %s was moved while it was read: %w",
		holdfast.Quote(w.levels[last].entry.Path()), err)
}

// fromTop opens a directory of the tree by its path from the top. It opens a long path in pieces, which are short
// enough for a system call.
func (w *walker) fromTop(p *parent) (int, error) {
	var names []string
	for ; p != nil; p = p.in {
		names = append(names, p.name)
	}
	slices.Reverse(names)
	top := w.levels[0].fd
	for at := top; ; {
		n, size := 0, 0
		for ; n < len(names) && size+len(names[n]) < 4000; n++ {
			size += len(names[n]) + 1
		}
		fd, err := w.open(at, strings.Join(names[:n], "/"))
		if at != top {
			unix.Close(at)
		}
		if names = names[n:]; err != nil || len(names) == 0 {
			return fd, err
		}
		at = fd
	}
}

// noName is the empty path, for a stat of the descriptor itself.
var noName [1]byte

// stat fills st for a name in an open directory; the name must end with a NUL. It follows no symlink.
func (w *walker) stat(dir int, text *byte, flags int) error { return statx(dir, text, flags, &w.st) }

// statx fills st for a name in an open directory; the name must end with a NUL. It follows no symlink.
func statx(dir int, text *byte, flags int, st *unix.Statx_t) error {
	flags |= unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	for {
		// unix.Statx is not used, because it would copy each name.
		_, _, err := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(text)), uintptr(flags),
			unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(st)), 0)
		switch err {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return err
		}
	}
}

func (w *walker) isDir() bool { return w.st.Mode&unix.S_IFMT == unix.S_IFDIR }

// entry makes an Entry of the last stat (w.st) for a name in the directory l; l is nil for the top.
func (w *walker) entry(l *level, text string) Entry {
	e := entryOf(&w.st)
	e.Name, e.w = text, w
	if l != nil {
		e.Depth, e.in = l.entry.Depth+1, l.path
	}
	return e
}

// entryOf makes an entry of a stat.
func entryOf(st *unix.Statx_t) Entry {
	return Entry{
		Mode: modeOf(st.Mode), Size: int64(st.Size), Disk: int64(st.Blocks) * 512,
		Mtime: time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)), Ctime: time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)),
		Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, Nlink: st.Nlink, UID: st.Uid, GID: st.Gid,
	}
}

// failed passes an entry whose stat failed to the caller, with the error.
func (w *walker) failed(l *level, text string, err error) error {
	e := Entry{Name: text, Depth: l.entry.Depth + 1, Mode: fs.ModeIrregular, in: l.path, w: w}
	return w.give(e, about(e, "stat", err))
}

// modeOf translates the mode of a stat to an fs.FileMode.
func modeOf(m uint16) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	if m&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if m&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if m&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}
