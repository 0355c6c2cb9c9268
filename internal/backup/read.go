package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-run/holdfast"
)

const (
	// mostJSON is the largest head or manifest that is read, mostKeys the largest entry of keys.
	mostJSON = 256 << 20
	mostKeys = 1 << 20
	// mostWindow is the largest window of compressed data, which the reader keeps in memory.
	mostWindow = 32 << 20
)

// Read reads an archive to its end and checks it. It calls file for each file of the server, with its name
// in the data directory, and keys with the encrypted keys, if there are any; both may be nil. What file got
// counts only if Read returns no error. The error is invalid for anything that is not a whole archive.
func Read(ctx context.Context, r io.Reader, file func(f File, mode int64, r io.Reader) error, keys func([]byte) error) (Summary, error) {
	var s Summary
	z, err := zstd.NewReader(&source{ctx: ctx, r: r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
	if err != nil {
		return s, damaged("%w", err)
	}
	defer z.Close()
	in := &reader{tar: tar.NewReader(z), file: file, keys: keys}
	if err := in.all(); err != nil {
		return s, told(err)
	}
	// Only the end shows that the compressed data are whole.
	if n, err := io.Copy(io.Discard, z); err != nil || n > 64<<10 {
		return s, told(errors.Join(err, damaged("there is something behind its end")))
	}
	return in.sum, nil
}

// source is the input of an archive. Its errors are not the archive's.
type source struct {
	ctx context.Context
	r   io.Reader
}

type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

func (s *source) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, sourceError{err}
	}
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		err = sourceError{err}
	}
	return n, err
}

// told returns an error of reading an archive as callers get it.
func told(err error) error {
	var known *holdfast.Error
	var from sourceError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &from):
		return holdfast.Errorf(holdfast.KindUnavailable, "backup", "the backup cannot be read: %w", from.error)
	}
	return damaged("%w", err)
}

func damaged(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInvalid, "backup", "this is not a whole backup: "+format, args...).
		WithHint("use another one; a backup that was interrupted while it was written cannot be restored")
}

// reader reads the entries of an archive.
type reader struct {
	tar  *tar.Reader
	file func(File, int64, io.Reader) error
	keys func([]byte) error
	sum  Summary
	// files are the files that were read.
	files []File
}

// all reads the entries: the keys, if there are any, the head, the files, the manifest.
func (r *reader) all() error {
	h, err := r.next()
	if err != nil {
		return err
	}
	if h.Name == keysName {
		if err := r.readKeys(h); err != nil {
			return err
		}
		if h, err = r.next(); err != nil {
			return err
		}
	}
	if h.Name != headName {
		return damaged("its first entry is %s, not %s", holdfast.Quote(h.Name), headName)
	}
	if err := r.json(h, &r.sum.Head); err != nil {
		return err
	}
	if r.sum.Version != version {
		return holdfast.Errorf(holdfast.KindInvalid, "backup", "the backup has format %d, this release reads %d", r.sum.Version, version).
			WithHint("restore it with release %s, which wrote it", holdfast.Quote(r.sum.Release))
	}
	for {
		if h, err = r.next(); err != nil {
			return err
		}
		if h.Name == endName {
			break
		}
		if err := r.one(h); err != nil {
			return err
		}
	}
	if err := r.json(h, &r.sum.Manifest); err != nil {
		return err
	}
	if _, err := r.tar.Next(); err != io.EOF {
		return errors.Join(err, damaged("there is something behind its manifest"))
	}
	return r.compare()
}

func (r *reader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	if err == io.EOF {
		return nil, damaged("it ends before its manifest")
	}
	return h, err
}

func (r *reader) json(h *tar.Header, v any) error {
	if h.Size > mostJSON {
		return damaged("%s has %d bytes", h.Name, h.Size)
	}
	if err := json.NewDecoder(r.tar).Decode(v); err != nil {
		return damaged("%s: %w", h.Name, err)
	}
	return nil
}

func (r *reader) readKeys(h *tar.Header) error {
	if h.Size > mostKeys {
		return damaged("%s has %d bytes", h.Name, h.Size)
	}
	b, err := io.ReadAll(r.tar)
	if err != nil {
		return err
	}
	r.sum.Keys = true
	if r.keys == nil {
		return nil
	}
	return r.keys(b)
}

// one reads a file.
func (r *reader) one(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg || !known(h.Name) {
		return damaged("it has an entry %s, which no backup has", holdfast.Quote(h.Name))
	}
	f := File{Name: h.Name, Size: h.Size}
	sum := sha256.New()
	in := io.TeeReader(r.tar, sum)
	if r.file != nil {
		if err := r.file(f, h.Mode, in); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	r.files = append(r.files, f)
	r.sum.Bytes += f.Size
	return nil
}

// known reports whether an archive may have a file of this name.
func known(name string) bool {
	if !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name {
		return false
	}
	dir, base := path.Split(name)
	switch {
	case name == databaseName, name == snapshotKey:
		return true
	case dir == snapshotDir+"/":
		return strings.HasSuffix(base, packSuffix)
	}
	return strings.HasPrefix(name, agentDir+"/")
}

// compare compares the files that were read with the manifest.
func (r *reader) compare() error {
	listed := r.sum.Manifest.Files
	for i, f := range r.files {
		if i >= len(listed) || listed[i] != f {
			return damaged("%s is not what the manifest says", holdfast.Quote(f.Name))
		}
	}
	if len(listed) > len(r.files) {
		return damaged("%s is missing", holdfast.Quote(listed[len(r.files)].Name))
	}
	if len(listed) == 0 || listed[0].Name != databaseName {
		return damaged("it has no database")
	}
	return nil
}
