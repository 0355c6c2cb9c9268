package tree

import (
	"archive/tar"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Target describes what an archive becomes in a directory.
type Target struct {
	// Name is the name that the archive's content gets in the directory. If it is empty, the archive's
	// entries go into the directory itself. If a directory is there already, the archive is merged into
	// it: files of the archive replace files with the same names, and other files stay.
	Name string
	// File is true if the archive must be one file or symlink, which becomes Name.
	File bool
}

// Unpack reads a tar archive and puts its entries into an open directory. It first unpacks the archive
// into a staging directory there, flushes it to disk, and then renames the entries to their places. So an
// archive that is refused or incomplete changes nothing. If the process ends during the renames of a
// merge, each file is either the old or the new one. Unpack returns invalid for: names that are absolute,
// lead upwards or lead through a symlink of the archive; names that occur twice; hard links to anything
// but an earlier file of the archive; sparse files; devices and other special files. It returns conflict
// if a file is at the place of a directory, or the reverse.
func Unpack(dir *os.Root, to Target, r io.Reader, opt Options) (holdfast.Copied, error) {
	u := &unpacker{opt: opt.defaults(), dir: dir, to: to, src: source{r: r}, buf: make([]byte, 0, piece)}
	defer func() { _ = u.opt.Do(u.discard) }()
	if err := u.opt.Do(u.begin); err != nil {
		return u.sum, fail("tree.unpack", to.Name, err)
	}
	if err := u.read(tar.NewReader(&u.src)); err != nil {
		return u.sum, err
	}
	return u.sum, u.opt.Do(u.commit)
}

// staged is the name of the unpacked tree in the staging directory.
const staged = "x"

type unpacker struct {
	opt Options
	dir *os.Root
	to  Target
	src source
	sum holdfast.Copied
	// bytes and entries are the totals that the archive's headers have announced so far.
	bytes, entries int64
	// tmp is the name of the staging directory in dir; top is the staging directory, opened.
	tmp string
	top *os.Root
	// steps are functions that the next flush runs in one call of Options.Do. buf holds their data.
	steps []func() error
	buf   []byte
	// in is the open directory that contains the entry that was handled last; of is the path of this directory.
	in *os.Root
	of string
	// file is the file being written.
	file *os.File
	// locked are directories whose owner may not read, write or enter them. Their modes are set after all entries are
	// at their places.
	locked []dirMode
	// lockedBytes is how many bytes the paths in locked have.
	lockedBytes int
}

type dirMode struct {
	path string
	mode fs.FileMode
}

// source reads the stream and records how it ended. So an error of the stream can be distinguished from an error in the
// archive.
type source struct {
	r     io.Reader
	err   error
	ended bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	switch {
	case errors.Is(err, io.EOF) && n > 0:
		err = nil
	case errors.Is(err, io.EOF):
		s.ended = true
	case err != nil:
		s.err = err
	}
	return n, err
}

func refused(format string, args ...any) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, "tree.unpack", format, args...)
}

// begin makes the staging directory. If Options.Life is set, it first removes stale staging directories.
func (u *unpacker) begin() error {
	if u.opt.Life != "" {
		if err := u.sweep(); err != nil {
			return err
		}
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // rand.Read never fails
	top := staging(cmp.Or(u.opt.Life, "copy"), hex.EncodeToString(b[:]))
	if err := u.dir.Mkdir(top, 0o700); err != nil {
		return err
	}
	u.tmp = top
	if !u.to.File {
		top += "/" + staged
		if err := u.dir.Mkdir(top, 0o755); err != nil {
			return err
		}
	}
	var err error
	u.top, err = u.dir.OpenRoot(top)
	return err
}

func (u *unpacker) sweep() error {
	list, err := u.dir.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(512)
		for _, name := range names {
			if stale(name, u.opt.Life) {
				_ = removeAll(u.dir, name)
			}
		}
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

// discard removes the staging directory with everything that is left in it.
func (u *unpacker) discard() error {
	if u.file != nil {
		_ = u.file.Close()
	}
	for _, r := range []*os.Root{u.in, u.top} {
		if r != nil {
			_ = r.Close()
		}
	}
	if u.tmp == "" {
		return nil
	}
	return removeAll(u.dir, u.tmp)
}

// maxTrailer is how many bytes of padding may follow the end of an archive.
const maxTrailer = 1 << 20

// read reads all entries of the archive.
func (u *unpacker) read(tr *tar.Reader) error {
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) && u.src.ended {
			err = io.ErrUnexpectedEOF // the end of an archive is marked by empty blocks
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.take(h, tr)
		}
		if err != nil {
			return u.broken(err)
		}
	}
	if n, err := io.CopyN(io.Discard, &u.src, maxTrailer+1); err == nil {
		return refused("more than %d bytes follow the end of the archive", n-1)
	} else if !errors.Is(err, io.EOF) {
		return u.broken(err)
	}
	if u.to.File && u.entries != 1 {
		return refused("the archive of a single file holds %d entries", u.entries)
	}
	if u.entries == 0 {
		return refused("the archive is empty")
	}
	return u.flush()
}

// broken returns the error of Unpack for an error err that occurred while the archive was read.
func (u *unpacker) broken(err error) error {
	switch {
	case u.src.err != nil && holdfast.KindOf(u.src.err) != holdfast.KindInternal:
		return u.src.err
	case u.src.err != nil:
		return holdfast.Errorf(holdfast.KindUnavailable, "tree.unpack", "the data of the archive broke off: %w", u.src.err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refused("the archive ends before its end mark")
	case errors.Is(err, tar.ErrHeader):
		return refused("the data is not a tar archive").WithHint("tar c DIR makes a tar archive, without compression")
	}
	return fail("tree.unpack", u.to.Name, err)
}

// take checks one entry of the archive, and puts it into the staging directory.
func (u *unpacker) take(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return u.leftOut(h.PAXRecords[leftOut])
	}
	if u.entries++; u.entries > u.opt.MaxEntries {
		return holdfast.Errorf(holdfast.KindTooLarge, "tree.unpack", "the archive has more than %d entries", u.opt.MaxEntries)
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	if at := path.Join(u.to.Name, name); u.opt.Hidden(at) || u.to.File && u.opt.Hidden(u.to.Name) {
		return holdfast.Errorf(holdfast.KindDenied, "tree.unpack", "the archive has an entry for %s, a path that may not be written", holdfast.Quote(at)).
			WithHint("leave that entry out of the archive")
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refused("%s is a sparse file", holdfast.Quote(h.Name)).WithHint("make the archive without --sparse")
		}
	}
	isDir := h.Typeflag == tar.TypeDir
	switch {
	case u.to.File && (isDir || path.Base(name) != name || name == "."):
		return refused("the archive must be a single file, but %s is a directory", holdfast.Quote(h.Name))
	case u.to.File:
		name = staged
	case name == "." && !isDir:
		return refused("the archive's top entry %s is not a directory", holdfast.Quote(h.Name))
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		u.sum.Dirs++
		return u.step(func() error { return u.mkdir(name, mode) })
	case tar.TypeReg:
		return u.regular(h, name, mode, content)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxTarget || strings.IndexByte(h.Linkname, 0) >= 0 {
			return refused("the target of the link %s is not a path", holdfast.Quote(h.Name))
		}
		u.sum.Links++
		if to := path.Join(path.Dir(name), h.Linkname); path.IsAbs(h.Linkname) || to == ".." || strings.HasPrefix(to, "../") {
			u.sum.LinksOut++
		}
		return u.step(func() error { return u.symlink(name, h.Linkname) })
	case tar.TypeLink:
		target, err := entryName(h.Linkname)
		if err != nil {
			return err
		}
		u.sum.Links++
		return u.step(func() error { return u.link(name, target) })
	}
	return refused("%s is neither a file, a directory nor a link (tar type %q)", holdfast.Quote(h.Name), h.Typeflag)
}

// The longest path, name and symlink target of an entry, in bytes, as on Linux.
const (
	maxPath   = 4096
	maxName   = 255
	maxTarget = 4095
)

// entryName returns the clean name of an entry; "." is the directory itself.
func entryName(s string) (string, error) {
	switch {
	case s == "" || strings.IndexByte(s, 0) >= 0 || len(s) > maxPath:
		return "", refused("%s is not the name of an entry", holdfast.Quote(s))
	case path.IsAbs(s):
		return "", refused("the name %s is absolute", holdfast.Quote(s)).WithHint("make the archive with relative names of entries")
	}
	parts := strings.Split(s, "/")
	if len(parts) > maxDepth {
		return "", refused("the name %s is more than %d directories deep", holdfast.Quote(s), maxDepth)
	}
	for _, part := range parts {
		if part == ".." {
			return "", refused("the name %s leads upwards", holdfast.Quote(s))
		}
		if len(part) > maxName {
			return "", refused("a part of the name %s has more than %d bytes", holdfast.Quote(s), maxName)
		}
	}
	return path.Clean(s), nil
}

// leftOut reads the record in which Pack listed what it left out of the archive, and adds it to the result of Unpack.
func (u *unpacker) leftOut(text string) error {
	var left holdfast.Copied
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &left); err != nil {
		return refused("the archive's record %s cannot be read: %v", leftOut, err)
	}
	u.sum.Skipped, u.sum.SkippedMore = left.Skipped, left.SkippedMore
	u.sum.Incomplete, u.sum.IncompleteMore = left.Incomplete, left.IncompleteMore
	return nil
}

// maxSteps is how many steps one flush runs at most.
const maxSteps = 256

// step adds a function that works on the file system; a later flush runs it.
func (u *unpacker) step(fn func() error) error {
	u.steps = append(u.steps, fn)
	if len(u.steps) < maxSteps {
		return nil
	}
	return u.flush()
}

// flush runs the waiting steps.
func (u *unpacker) flush() error {
	err := u.opt.Do(func() error {
		for _, fn := range u.steps {
			if err := fn(); err != nil {
				return err
			}
		}
		return nil
	})
	clear(u.steps)
	u.steps, u.buf = u.steps[:0], u.buf[:0]
	return err
}

// regular handles an entry that is a file.
func (u *unpacker) regular(h *tar.Header, name string, mode fs.FileMode, content io.Reader) error {
	if u.opt.MaxBytes > 0 && h.Size > u.opt.MaxBytes-u.bytes {
		return holdfast.Errorf(holdfast.KindTooLarge, "tree.unpack", "the files of the archive have more than %d bytes", u.opt.MaxBytes).
			WithHint("copy less at once, or raise limits.copy in the server's configuration")
	}
	u.bytes += h.Size
	u.sum.Files++
	u.sum.Bytes += h.Size
	if err := u.step(func() error { return u.create(name) }); err != nil {
		return err
	}
	for {
		if cap(u.buf)-len(u.buf) < 32<<10 {
			if err := u.flush(); err != nil {
				return err
			}
		}
		room := u.buf[len(u.buf):min(cap(u.buf), len(u.buf)+64<<10)]
		n, err := content.Read(room)
		if n > 0 {
			data := room[:n]
			u.buf = u.buf[:len(u.buf)+n]
			if err := u.step(func() error { return u.write(name, data) }); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return u.step(func() error { return u.finish(name, mode, h.ModTime) })
}
