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
// executable bits on every machine. Before the first byte, the folder is checked by Deploy's rules,
// so that a folder that would be refused is not sent; ignore files have no effect. Errors are
// returned by Read: invalid and too_large as from Deploy, not_found if there is no folder, denied if a file may not be
// read, conflict if a file's size changes. Packing ends with ctx. Close is needed only if reading ends early. Not safe
// for concurrent use.
func PackDir(ctx context.Context, dir string) io.ReadCloser {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(packDir(ctx, dir, w)) }()
	return r
}

func packDir(ctx context.Context, dir string, w io.Writer) error {
	root, err := openDir(dir)
	if err != nil {
		return local(dir, err)
	}
	defer root.Close()
	files, err := scan(ctx, root.Name())
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := packFile(tw, root, f); err != nil {
			return err
		}
	}
	return tw.Close()
}

// openDir opens a folder as a root: it confines all access, because a directory in the folder may be
// replaced by a symlink at any time.
func openDir(dir string) (*os.Root, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = holdfast.Errorf(holdfast.KindInvalid, op, "the agent's folder %s is not a directory", holdfast.Quote(dir))
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// packFile adds one file. A file that has another size than when the folder was checked is an error.
func packFile(tw *tar.Writer, root *os.Root, f holdfast.AgentFile) error {
	changed := holdfast.Errorf(holdfast.KindConflict, op, "the file %s changed while the folder was packed", holdfast.Quote(f.Path)).WithHint("deploy again")
	file, err := root.OpenFile(filepath.FromSlash(f.Path), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return local(f.Path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return local(f.Path, err)
	}
	if !info.Mode().IsRegular() || info.Size() != f.Size {
		return changed
	}
	err = tw.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: f.Path, Size: f.Size, Mode: int64(f.Mode), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	n, err := io.Copy(tw, file)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != f.Size {
		return changed
	}
	return local(f.Path, err)
}

// scan checks the folder by Deploy's rules, and returns its files.
func scan(ctx context.Context, dir string) ([]holdfast.AgentFile, error) {
	c := newChecker()
	for e, err := range rooted.Walk(ctx, dir, rooted.Bounds{Entries: maxEntries + 2, Depth: maxPath, Mounts: true}) {
		name := e.Path()
		switch {
		case err != nil:
			return nil, local(name, err)
		case e.Depth == 0:
			continue
		case e.Mode.IsDir():
			if err := c.dir(name); err != nil {
				return nil, err
			}
			continue
		case !e.Mode.IsRegular():
			return nil, refused(name, tree.Kind(e.Mode))
		}
		if err := c.file(name, e.Size); err != nil {
			return nil, err
		}
		c.add(holdfast.AgentFile{Path: name, Size: e.Size, Mode: fileMode(e.Mode)})
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	return c.files, nil
}

func local(name string, err error) error {
	var known *holdfast.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
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
	return holdfast.Errorf(kind, op, "the file or folder %s cannot be read: %w", holdfast.Quote(name), err)
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
