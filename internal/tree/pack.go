package tree

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
)

// leftOut is the key of a record in an archive. The record lists the files that Pack left out, as the
// JSON of a Copied. Other readers of tar archives ignore it.
const leftOut = "HOLDFAST.left"

// Pack writes the entry name of an open directory to w as a tar archive: a directory with everything in
// it, with an entry "./" first, or one file or symlink. The name "." means the open directory itself. If an
// entry in the directory cannot be read, or changes while it is read, this is not an error: the Copied
// lists it.
func Pack(dir *os.Root, name string, w io.Writer, opt Options) (holdfast.Copied, error) {
	opt = opt.defaults()
	p := &packer{links: map[inode]string{}, top: name, hidden: opt.Hidden}
	p.tw = tar.NewWriter(&p.out)
	defer p.close()
	err := opt.Do(func() error { return p.begin(dir, name) })
	for done := false; err == nil && !done; {
		if err = opt.Do(func() (err error) { done, err = p.fill(); return err }); err == nil {
			_, err = p.out.WriteTo(w)
		}
	}
	return p.sum, err
}

// IsTree reports whether an archive of Pack contains a directory, not a single file. It peeks at r and reads nothing from
// it.
func IsTree(r *bufio.Reader) (bool, error) {
	block, err := r.Peek(512)
	if err != nil {
		return false, holdfast.Errorf(holdfast.KindUnavailable, "tree", "the archive ends before its first header: %w", err)
	}
	h, err := tar.NewReader(bytes.NewReader(block)).Next()
	return err == nil && h.Typeflag == tar.TypeDir && h.Name == "./", nil
}

type packer struct {
	tw  *tar.Writer
	out bytes.Buffer
	// top is the name of the file or directory that is packed; hidden is Options.Hidden.
	top    string
	hidden func(path string) bool
	// dirs are the open directories, from the top directory down to the one that is being packed.
	dirs []*openDir
	// file is the file that is being packed, info its stat when it was opened. left is how many bytes of
	// its content are still to be written: its header in the archive has the size at that time.
	file  *os.File
	info  fs.FileInfo
	path  string
	left  int64
	links map[inode]string
	// linked is how many bytes the paths in links have.
	linked int
	buf    [64 << 10]byte
	sum    holdfast.Copied
}

// openDir is a directory whose entries are packed one after the other.
type openDir struct {
	path string
	root *os.Root
	list *os.File
	next []fs.DirEntry
}

func (p *packer) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
	for _, d := range p.dirs {
		d.close()
	}
}

func (d *openDir) close() {
	_ = d.list.Close()
	_ = d.root.Close()
}

// begin packs the entry of the file or directory that was requested, and opens it.
func (p *packer) begin(dir *os.Root, name string) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return fail("tree.pack", name, err)
	}
	if !info.IsDir() {
		if err := p.entry(dir, name, name, info); err != nil {
			return err
		}
		if left := append(p.sum.Skipped, p.sum.Incomplete...); len(left) > 0 {
			return holdfast.Errorf(holdfast.KindInvalid, "tree.pack", "%s", left[0])
		}
		return nil
	}
	if err := p.enter(dir, name, "", info); err != nil {
		return fail("tree.pack", name, err)
	}
	return nil
}

// fill appends the next piece of the archive to p.out. done is true if the archive is complete.
func (p *packer) fill() (done bool, err error) {
	for p.out.Len() < piece && err == nil {
		switch {
		case p.file != nil:
			err = p.content()
		case len(p.dirs) == 0:
			return true, p.end()
		default:
			err = p.walk(p.dirs[len(p.dirs)-1])
		}
	}
	return false, err
}

// walk packs the next entry of the directory being read.
func (p *packer) walk(d *openDir) error {
	if len(d.next) == 0 {
		next, err := d.list.ReadDir(256)
		if len(next) == 0 {
			if !errors.Is(err, io.EOF) {
				p.incomplete(d.path, why(err))
			}
			d.close()
			p.dirs = p.dirs[:len(p.dirs)-1]
			return nil
		}
		d.next = next
	}
	name := d.next[0].Name()
	d.next = d.next[1:]
	path := name
	if d.path != "" {
		path = d.path + "/" + name
	}
	if p.hidden(filepath.Join(p.top, path)) {
		named(&p.sum.Skipped, &p.sum.SkippedMore, path, "it may not be copied")
		return nil
	}
	info, err := d.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // the entry was removed before it was read
	case err != nil:
		p.incomplete(path, why(err))
		return nil
	case !info.IsDir():
		return p.entry(d.root, name, path, info)
	case len(p.dirs) == maxDepth:
		p.incomplete(path, "its directories are nested too deeply")
		return nil
	}
	if err := p.enter(d.root, name, path, info); err != nil {
		p.incomplete(path, why(err))
	}
	return nil
}

// enter opens a directory and packs its own entry.
func (p *packer) enter(in *os.Root, name, path string, info fs.FileInfo) error {
	root, err := in.OpenRoot(name)
	if err != nil {
		return err
	}
	list, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return err
	}
	p.dirs = append(p.dirs, &openDir{path: path, root: root, list: list})
	p.sum.Dirs++
	if path == "" {
		path = "."
	}
	return p.header(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/"}, info)
}

// entry packs an entry that is not a directory.
func (p *packer) entry(in *os.Root, name, path string, info fs.FileInfo) error {
	switch info.Mode().Type() {
	case 0:
		return p.open(in, name, path, info)
	case fs.ModeSymlink:
		target, err := in.Readlink(name)
		if err != nil {
			p.incomplete(path, why(err))
			return nil
		}
		p.sum.Links++
		return p.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target}, info)
	}
	named(&p.sum.Skipped, &p.sum.SkippedMore, path, Kind(info.Mode()))
	return nil
}

// Kind describes, as "a symlink" or "a device", a file that is neither a regular file nor a directory.
func Kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symlink"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

func (p *packer) incomplete(path, why string) {
	named(&p.sum.Incomplete, &p.sum.IncompleteMore, path, why)
}

// open opens a regular file and packs its header, or a hard link if the file is in the archive already. It
// does not block, and skips the file if it has been replaced since info was read.
func (p *packer) open(in *os.Root, name, path string, info fs.FileInfo) error {
	id, several := inodeOf(info)
	if first, ok := p.links[id]; ok && several {
		p.sum.Links++
		return p.header(&tar.Header{Typeflag: tar.TypeLink, Name: path, Linkname: first}, info)
	}
	f, err := in.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		p.incomplete(path, why(err))
		return nil
	}
	now, err := f.Stat()
	if err != nil || !now.Mode().IsRegular() || !os.SameFile(info, now) {
		_ = f.Close()
		p.incomplete(path, "it was replaced while it was read")
		return nil
	}
	if several && len(p.links) < maxLinks && p.linked < maxNames {
		p.links[id] = path
		p.linked += len(path)
	}
	p.file, p.info, p.path, p.left = f, now, path, now.Size()
	p.sum.Files++
	p.sum.Bytes += now.Size()
	return p.header(&tar.Header{Typeflag: tar.TypeReg, Name: path, Size: now.Size()}, now)
}

func (p *packer) header(h *tar.Header, info fs.FileInfo) error {
	h.Mode = int64(info.Mode().Perm())
	h.ModTime = info.ModTime().Truncate(time.Second)
	if err := p.tw.WriteHeader(h); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "tree.pack", "cannot write the header of the file %s into the archive: %w", holdfast.Quote(h.Name), err)
	}
	return nil
}

// content packs the next piece of the open file. In total it writes as many bytes as the header says,
// also if the file becomes shorter or longer meanwhile.
func (p *packer) content() error {
	if p.left > 0 {
		n, err := p.file.Read(p.buf[:min(int64(len(p.buf)), p.left)])
		if n == 0 && errors.Is(err, syscall.EINTR) {
			return nil
		}
		if n == 0 {
			if p.info != nil {
				reason := "it became shorter while it was read"
				if !errors.Is(err, io.EOF) {
					reason = why(err)
				}
				p.incomplete(p.path, reason)
				p.info = nil
			}
			n = int(min(int64(len(p.buf)), p.left))
			clear(p.buf[:n])
		}
		p.left -= int64(n)
		if _, err := p.tw.Write(p.buf[:n]); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "tree.pack", "cannot write the content of the file %s into the archive: %w", holdfast.Quote(p.path), err)
		}
		if p.left > 0 {
			return nil
		}
	}
	if p.info != nil {
		if now, err := p.file.Stat(); err != nil || now.Size() != p.info.Size() || !now.ModTime().Equal(p.info.ModTime()) {
			p.incomplete(p.path, "it changed while it was read")
		}
	}
	err := p.file.Close()
	p.file = nil
	return err
}

// end writes the record of the files that were left out, if any, and ends the archive.
func (p *packer) end() error {
	if len(p.sum.Skipped)+len(p.sum.Incomplete) > 0 {
		left := holdfast.Copied{
			Skipped: p.sum.Skipped, SkippedMore: p.sum.SkippedMore,
			Incomplete: p.sum.Incomplete, IncompleteMore: p.sum.IncompleteMore,
		}
		text, err := json.Marshal(left)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{leftOut: string(text)}}
		if err := p.tw.WriteHeader(h); err != nil {
			return err
		}
	}
	return p.tw.Close()
}
