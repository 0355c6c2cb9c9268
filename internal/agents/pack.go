package agents

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/tree"
)

// PackDir returns the tar of a folder, for Deploy: the same bytes for the same paths, contents and
// executable bits on every machine. When the first byte is read, the folder is checked by Deploy's
// rules, so that a folder that would be refused is not sent; ignore files have no effect. Errors
// are returned by Read: invalid and too_large as from Deploy, not_found if there is no folder.
// Reading ends with ctx. Close is needed only if reading ends early. Not safe for concurrent use.
func PackDir(ctx context.Context, dir string) io.ReadCloser {
	p := &packer{ctx: ctx, dir: dir}
	p.tw = tar.NewWriter(&p.buf)
	return p
}

// packer is an io.ReadCloser that produces the tar piece by piece.
type packer struct {
	//nolint:containedctx // a Reader has no context, and this one is read once
	ctx context.Context
	dir string
	// root confines all access to dir, because a directory in it may be replaced by a symlink at any
	// time.
	root  *os.Root
	files []holdfast.AgentFile
	began bool
	next  int
	open  *os.File
	buf   bytes.Buffer
	tw    *tar.Writer
	ended error
}

// Read implements io.Reader.
func (p *packer) Read(b []byte) (int, error) {
	for p.buf.Len() == 0 && p.ended == nil {
		if err := p.step(); err != nil {
			p.ended = err
			_ = p.Close()
		}
	}
	if p.buf.Len() > 0 {
		return p.buf.Read(b)
	}
	return 0, p.ended
}

// Close closes the folder and the open file.
func (p *packer) Close() error {
	if p.ended == nil {
		p.ended = fs.ErrClosed
	}
	var errs []error
	if p.open != nil {
		errs = append(errs, p.open.Close())
		p.open = nil
	}
	if p.root != nil {
		errs = append(errs, p.root.Close())
		p.root = nil
	}
	return errors.Join(errs...)
}

// step adds the next piece of the tar to the buffer; it returns io.EOF after the last.
func (p *packer) step() error {
	switch {
	case !p.began:
		p.began = true
		return p.scan()
	case p.open != nil:
		_, err := io.CopyN(p.tw, p.open, 64<<10)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, tar.ErrWriteTooLong):
			return p.changed(p.files[p.next-1].Path)
		case !errors.Is(err, io.EOF):
			return local(p.files[p.next-1].Path, err)
		}
		err = p.open.Close()
		p.open = nil
		return err
	case p.next < len(p.files):
		f := p.files[p.next]
		p.next++
		return p.header(f)
	}
	if err := p.tw.Close(); err != nil {
		return p.changed(p.files[p.next-1].Path)
	}
	p.ended = io.EOF
	return p.Close()
}

// header begins a file in the tar. A file whose size changed since the scan is an error: the tar
// must contain what was checked.
func (p *packer) header(f holdfast.AgentFile) error {
	if err := p.tw.Flush(); err != nil {
		return p.changed(p.files[p.next-2].Path)
	}
	file, err := p.root.OpenFile(filepath.FromSlash(f.Path), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return local(f.Path, err)
	}
	p.open = file
	info, err := file.Stat()
	if err != nil {
		return local(f.Path, err)
	}
	if !info.Mode().IsRegular() || info.Size() != f.Size {
		return p.changed(f.Path)
	}
	return p.tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: f.Path, Size: f.Size, Mode: int64(f.Mode), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	})
}

func (p *packer) changed(name string) error {
	return holdfast.Errorf(holdfast.KindConflict, op, "the file %s changed while the folder was packed", holdfast.Quote(name)).WithHint("deploy again")
}

// scan lists and checks the folder.
func (p *packer) scan() error {
	switch info, err := os.Stat(p.dir); {
	case err != nil:
		return local(p.dir, err)
	case !info.IsDir():
		return holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a directory", holdfast.Quote(p.dir))
	}
	c := newChecker()
	// The folder itself may be a symlink; symlinks in it are not followed.
	dir, err := filepath.Abs(p.dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		p.root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return local(p.dir, err)
	}
	// Allow one entry more than a folder may have, so that the checker refuses it with its own error.
	for e, err := range rooted.Walk(p.ctx, dir, rooted.Bounds{Entries: maxEntries + 2, Depth: maxPath, Mounts: true}) {
		name := e.Path()
		switch {
		case err != nil:
			return local(name, err)
		case e.Depth == 0:
			continue
		case e.Mode.IsDir():
			if err := c.dir(name); err != nil {
				return err
			}
			continue
		case !e.Mode.IsRegular():
			return refused(name, tree.Kind(e.Mode))
		}
		if err := c.file(name, e.Size); err != nil {
			return err
		}
		c.add(holdfast.AgentFile{Path: name, Size: e.Size, Mode: fileMode(e.Mode)})
	}
	if err := c.finish(); err != nil {
		return err
	}
	p.files = c.files
	return nil
}

func local(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	kind := holdfast.KindInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = holdfast.KindNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = holdfast.KindDenied
	}
	return holdfast.Errorf(kind, op, "%s: %w", holdfast.Quote(name), err)
}

// pack returns the tar of a folder of an embedded file system.
func pack(from fs.FS, dir string) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	sub, err := fs.Sub(from, dir)
	if err == nil {
		err = tw.AddFS(sub)
	}
	err = errors.Join(err, tw.Close())
	return buf.Bytes(), err
}
