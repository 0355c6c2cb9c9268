package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-run/holdfast"
)

// Source is a running server.
type Source struct {
	// Data is the data directory of the server, Release the release that it runs.
	Data, Release string
	// Settle takes the snapshots of files that are due, and returns the sessions of which it could not take one.
	Settle func(ctx context.Context) ([]holdfast.SessionID, error)
	// Database writes a copy of the database, as it is at one moment, to a new file.
	Database func(ctx context.Context, path string) error
	// Paused runs fn, and keeps the server from removing packs of snapshots until fn returns.
	Paused func(fn func() error) error
	Clock  func() time.Time
}

// Writer writes archives of a server. Safe for concurrent use; it writes one at a time.
type Writer struct {
	src  Source
	busy sync.Mutex
}

// NewWriter returns the Writer of a server, and removes what the writer of a server that was killed left.
func NewWriter(src Source) (*Writer, error) {
	w := &Writer{src: src}
	return w, w.clear()
}

// stage is the directory in which a state of the server is kept while it is written to an archive.
func (w *Writer) stage() string { return filepath.Join(w.src.Data, "backup") }

func (w *Writer) clear() error {
	if err := os.RemoveAll(w.stage()); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "backup", "the files that an interrupted backup left cannot be removed: %w", err).
			WithHint("rm -r %s", w.stage())
	}
	return nil
}

// Write writes an archive to out while the server works. The error is conflict if another one is being
// written, unavailable if the disk has no room for a copy of the database. After an error, the bytes that out got are
// not a valid archive.
func (w *Writer) Write(ctx context.Context, out io.Writer) (err error) {
	if !w.busy.TryLock() {
		return holdfast.Errorf(holdfast.KindConflict, "backup", "another backup of this server is being written").
			WithHint("try again when the other backup has ended")
	}
	defer w.busy.Unlock()
	defer func() { err = errors.Join(err, w.clear()) }()
	behind, err := w.src.Settle(ctx)
	if err != nil {
		return err
	}
	if err := w.keep(ctx); err != nil {
		return err
	}
	a, err := newArchive(ctx, out)
	if err != nil {
		return err
	}
	if err := a.addJSON(headName, Head{Version: version, Release: w.src.Release, CreatedAt: w.src.Clock().UTC()}); err != nil {
		return err
	}
	if err := a.addTree(w.stage(), ""); err != nil {
		return err
	}
	// The files of an agent's version are only ever added, never changed or removed, so the files of all versions that
	// the copied database names are there.
	if err := a.addTree(w.src.Data, agentDir); err != nil {
		return err
	}
	if err := a.addJSON(endName, Manifest{Files: a.files, Behind: behind}); err != nil {
		return err
	}
	return a.close()
}

// keep copies the database into the stage and makes hard links there to the packs, so that packs which the copy needs
// stay readable although the server may remove them meanwhile.
func (w *Writer) keep(ctx context.Context) error {
	packs := filepath.Join(w.src.Data, snapshotDir)
	if err := os.MkdirAll(filepath.Join(w.stage(), snapshotDir), 0o700); err != nil {
		return disk(err)
	}
	return w.src.Paused(func() error {
		if err := w.src.Database(ctx, filepath.Join(w.stage(), databaseName)); err != nil {
			return err
		}
		if err := os.Link(filepath.Join(w.src.Data, snapshotKey), filepath.Join(w.stage(), snapshotKey)); err != nil {
			return disk(err)
		}
		list, err := os.ReadDir(packs)
		if err != nil {
			return disk(err)
		}
		for _, e := range list {
			if !strings.HasSuffix(e.Name(), packSuffix) {
				continue
			}
			// An unfinished pack is left out: the copied database does not name it. A pack's mark file is made before the pack
			// has its name, so the mark is seen here.
			if _, err := os.Lstat(filepath.Join(packs, markPrefix+e.Name()+markSuffix)); err == nil {
				continue
			}
			if err := os.Link(filepath.Join(packs, e.Name()), filepath.Join(w.stage(), snapshotDir, e.Name())); err != nil {
				return disk(err)
			}
		}
		return nil
	})
}

func disk(err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "backup", "a file of the backup or of the data directory cannot be read or written: %w", err)
}

// archive is an archive being written.
type archive struct {
	ctx   context.Context
	zstd  *zstd.Encoder
	tar   *tar.Writer
	files []File
}

func newArchive(ctx context.Context, out io.Writer) (*archive, error) {
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "backup", "the backup cannot be compressed: %w", err)
	}
	return &archive{ctx: ctx, zstd: z, tar: tar.NewWriter(z)}, nil
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.zstd.Close()) }

func (a *archive) addJSON(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, "backup", "the entry %s of the backup cannot be encoded: %w", name, err)
	}
	return a.add(name, 0o600, int64(len(b)), bytes.NewReader(b))
}

func (a *archive) add(name string, mode fs.FileMode, size int64, r io.Reader) error {
	if err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: int64(mode.Perm()), Size: size, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.Copy(a.tar, r)
	return err
}

// addTree adds the regular files in and below the directory dir of root, except those that archives leave out. An empty
// dir is root itself.
func (a *archive) addTree(root, dir string) error {
	return filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = a.ctx.Err()
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && leftOut(name):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		return a.addFile(name, path)
	})
}

func (a *archive) addFile(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return disk(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return disk(err)
	}
	sum := sha256.New()
	if err := a.add(name, info.Mode(), info.Size(), io.TeeReader(f, sum)); err != nil {
		return err
	}
	a.files = append(a.files, File{Name: name, Size: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}
