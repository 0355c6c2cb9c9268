package agents

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// unpack extracts a tar into dir, a new empty directory, and returns its files, sorted by path. It
// creates only checked regular files and their directories. The contents are synced, the directory
// entries are not.
func unpack(r io.Reader, dir string) ([]holdfast.AgentFile, error) {
	src := &source{r: r}
	tr := tar.NewReader(src)
	c := newChecker()
	u := &unpacker{dir: dir, made: map[string]bool{".": true}}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, src.explain(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
		case tar.TypeDir:
			if name = strings.TrimSuffix(name, "/"); name == "" || name == "." {
				continue
			}
			if err := c.dir(name); err != nil {
				return nil, err
			}
		case tar.TypeReg:
			if err := c.file(name, h.Size); err != nil {
				return nil, err
			}
			f, err := u.file(name, h.FileInfo().Mode(), tr)
			if err != nil {
				return nil, src.explain(err)
			}
			c.add(f)
		default:
			return nil, special(h.Name, h.Typeflag)
		}
	}
	if src.ended {
		// A tar ends with two empty blocks; without them files may be missing.
		return nil, cutOff()
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	return c.files, nil
}

func special(name string, typ byte) error {
	what := "not a regular file"
	switch typ {
	case tar.TypeSymlink:
		what = "a symlink"
	case tar.TypeLink:
		what = "a hard link"
	case tar.TypeChar, tar.TypeBlock:
		what = "a device"
	case tar.TypeFifo:
		what = "a named pipe"
	}
	return refused(name, what)
}

func refused(name, what string) error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s cannot be in an agent's folder: it is %s", holdfast.Quote(name), what).
		WithHint("remove this path: an agent's folder may contain only regular files and directories")
}

func cutOff() error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "the tar of the agent's folder is empty or incomplete").WithHint("send the agent's folder again")
}

// source reads an upload. It distinguishes errors of the upload from errors of the tar in it.
type source struct {
	r     io.Reader
	err   error
	ended bool
	began bool
	gzip  bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if !s.began && n > 1 {
		s.began, s.gzip = true, p[0] == 0x1f && p[1] == 0x8b
	}
	switch {
	case n > 0 && errors.Is(err, io.EOF):
		return n, nil
	case errors.Is(err, io.EOF):
		s.ended = true
	case err != nil:
		s.err = err
	}
	return n, err
}

// explain converts an error of reading the tar to one for the sender. It returns other errors, such as those of the data
// directory, unchanged.
func (s *source) explain(err error) error {
	var known *holdfast.Error
	switch {
	case errors.As(err, &known):
		return err
	case s.err != nil && errors.As(s.err, &known):
		return s.err
	case s.err != nil:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the upload of the agent's folder broke off: %w", s.err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutOff()
	case s.gzip:
		return holdfast.Errorf(holdfast.KindInvalid, op, "the request body is compressed").WithHint("send the tar uncompressed")
	case errors.Is(err, tar.ErrHeader):
		return holdfast.Errorf(holdfast.KindInvalid, op, "the request body is not a tar").WithHint("holdfast agent deploy DIR --name NAME packs a folder as a tar and sends it")
	}
	return err
}

// unpacker writes files below the directory dir; made are the directories that exist.
type unpacker struct {
	dir  string
	made map[string]bool
}

// file writes one file. It fails if its path already exists as a file or a directory.
func (u *unpacker) file(name string, mode fs.FileMode, r io.Reader) (holdfast.AgentFile, error) {
	f := holdfast.AgentFile{Path: name, Mode: fileMode(mode)}
	if err := u.parents(path.Dir(name)); err != nil {
		return f, taken(name, err)
	}
	out, err := os.OpenFile(filepath.Join(u.dir, filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return f, taken(name, err)
	}
	h := sha256.New()
	err = durable.Write(out, func(out *os.File) (err error) {
		if f.Size, err = io.Copy(io.MultiWriter(out, h), r); err != nil {
			return err
		}
		return out.Chmod(0o400)
	})
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	return f, err
}

func fileMode(m fs.FileMode) uint32 {
	if m.Perm()&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

func (u *unpacker) parents(dir string) error {
	if u.made[dir] {
		return nil
	}
	if err := u.parents(path.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(u.dir, filepath.FromSlash(dir)), 0o700); err != nil {
		return err
	}
	u.made[dir] = true
	return nil
}

func taken(name string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s conflicts with an earlier entry of the tar", holdfast.Quote(name))
	}
	return err
}
