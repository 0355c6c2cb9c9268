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
	// mostHead is the largest head that is read, mostKeys the largest entry of keys.
	mostHead = 64 << 10
	mostKeys = 1 << 20
	// mostFiles is how many files an archive has at most, and mostBehind how many sessions its manifest names. mostName is
	// the longest name of a file, and mostNames the length of all names, in bytes.
	mostFiles  = 1 << 20
	mostBehind = 1 << 18
	mostName   = 2 << 10
	mostNames  = 256 << 20
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
	// Only reading to the end shows that the compressed data are complete.
	if n, err := io.Copy(io.Discard, z); err != nil || n > 64<<10 {
		return s, told(errors.Join(err, damaged("data follows its end")))
	}
	return in.sum, nil
}

// source is the stream that an archive is read from. It marks its own errors as sourceError, so that a failed read is
// not taken for a damaged archive.
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

// told turns an error from reading an archive into the one that callers of this package get, with a Kind.
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
		WithHint("use another backup; a backup whose writing was interrupted cannot be restored")
}

// reader reads the entries of an archive.
type reader struct {
	tar  *tar.Reader
	file func(File, int64, io.Reader) error
	keys func([]byte) error
	sum  Summary
	// files are the files that were read, and names is the length of their names.
	files []File
	names int
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
	if h.Size > mostHead {
		return damaged("%s has %d bytes", h.Name, h.Size)
	}
	if err := json.NewDecoder(r.tar).Decode(&r.sum.Head); err != nil {
		return damaged("%s: %w", h.Name, err)
	}
	if r.sum.Version != version {
		return holdfast.Errorf(holdfast.KindInvalid, "backup", "the backup has format %d, but this release reads only format %d", r.sum.Version, version).
			WithHint("restore the backup with release %s, which wrote it", holdfast.Quote(r.sum.Release))
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
	if err := r.manifest(h); err != nil {
		return err
	}
	if _, err := r.tar.Next(); err != io.EOF {
		return errors.Join(err, damaged("an entry follows its manifest"))
	}
	return nil
}

func (r *reader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	if err == io.EOF {
		return nil, damaged("it ends before its manifest")
	}
	return h, err
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

// one reads one file of the server from the archive, passes it to r.file, and notes its size and hash.
func (r *reader) one(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg || !known(h.Name) {
		return damaged("it has an entry %s, which no backup has", holdfast.Quote(h.Name))
	}
	if r.names += len(h.Name); len(r.files) >= mostFiles || len(h.Name) > mostName || r.names > mostNames {
		return damaged("it has more files, or longer names, than a backup has")
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

// manifest compares the manifest, entry by entry while it is read, with the files that were read before it. It does
// not keep the list of the manifest in memory, which may be as long as the author of the archive likes.
func (r *reader) manifest(h *tar.Header) error {
	// In the manifest a file takes less than 256 bytes besides its name, each byte of which takes at most six; a session
	// takes less than 64 bytes.
	if most := int64(64*mostBehind + 256*len(r.files) + 6*r.names); h.Size > most {
		return damaged("%s has %d bytes", h.Name, h.Size)
	}
	in := json.NewDecoder(r.tar)
	listed := 0
	t, err := in.Token()
	if err == nil && t != json.Delim('{') {
		err = damaged("its manifest is not a JSON object")
	}
	for err == nil && in.More() {
		var key json.Token
		if key, err = in.Token(); err != nil {
			break
		}
		switch key {
		case "files":
			err = each(in, func(f File) error {
				if listed == len(r.files) {
					return damaged("%s is missing", holdfast.Quote(f.Name))
				}
				if listed++; r.files[listed-1] != f {
					return unlisted(r.files[listed-1])
				}
				return nil
			})
		case "behind":
			err = each(in, func(id holdfast.SessionID) error {
				if len(r.sum.Behind) == mostBehind {
					return damaged("its manifest names more than %d sessions", mostBehind)
				}
				r.sum.Behind = append(r.sum.Behind, id)
				return nil
			})
		default:
			err = in.Decode(new(json.RawMessage))
		}
	}
	if err == nil {
		_, err = in.Token() // the closing brace of the manifest
	}
	var known *holdfast.Error
	switch {
	case errors.As(err, &known):
		return err
	case err != nil:
		return damaged("%s: %w", h.Name, err)
	case listed < len(r.files):
		return unlisted(r.files[listed])
	case listed == 0 || r.files[0].Name != databaseName:
		return damaged("it has no database")
	}
	r.sum.Files = r.files
	return nil
}

func unlisted(f File) error {
	return damaged("%s is not what the manifest says", holdfast.Quote(f.Name))
}

// each reads a list, which may be null, and calls one with each element, until it returns an error.
func each[T any](in *json.Decoder, one func(T) error) error {
	t, err := in.Token()
	switch {
	case err != nil || t == nil:
		return err
	case t != json.Delim('['):
		return damaged("its manifest has another value where a list belongs")
	}
	for in.More() {
		var v T
		if err := in.Decode(&v); err != nil {
			return err
		}
		if err := one(v); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return err
}
