package pack

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// Config configures a Store. With the zero value the Store is opened for writing.
type Config struct {
	// ReadOnly is for a directory to which another process writes: the store changes nothing, and Put, Commit, Repack,
	// Remove and Prepare return an error.
	ReadOnly bool
	// Rand is the source of the salts that make packs unique. If it is nil, crypto/rand is used.
	Rand io.Reader
	// Disk carries out all changes of the directory. If it is nil, OSDisk is used.
	Disk Disk
	// Spares is how many spare files of each size are kept ready for packs of small commits, after the first such commit.
	// If it is not 0, the caller must call Close.
	Spares int
}

// Store is a directory of packs. One process may have it open for writing; others may open it
// read-only at the same time. Safe for concurrent use.
type Store struct {
	dir      string
	readOnly bool
	rand     io.Reader
	disk     Disk
	keys     *keys
	codec    codec
	buffers  buffers
	indexes  cache[PackID, *index]
	spares   spares
	// packBlobs is the maximum number of blobs in a new pack.
	packBlobs int
}

// Open opens a directory of packs. For writing, it creates the directory if necessary, and removes the temporary files
// of a killed writer. If the directory has a pack of a newer version, Open returns an error that names the file.
func Open(dir string, keys Keys, cfg Config) (*Store, error) {
	k, err := newKeys(keys)
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, readOnly: cfg.ReadOnly, rand: cfg.Rand, disk: cfg.Disk, keys: k,
		indexes: cache[PackID, *index]{most: indexMemory}, packBlobs: maxBlobs,
	}
	s.spares.store, s.spares.want, s.spares.closing = s, cfg.Spares, make(chan struct{})
	if s.rand == nil {
		s.rand = rand.Reader
	}
	if s.disk == nil {
		s.disk = OSDisk{}
	}
	if !s.readOnly {
		if err := durable.MkdirAll(dir, 0o700); err != nil {
			return nil, failed("open packs", err)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, failed("open packs", err)
	}
	for _, n := range names {
		if _, ver, ok := parseName(n.Name()); ok && ver > version {
			return nil, newer(filepath.Join(dir, n.Name()), ver)
		}
	}
	if !s.readOnly {
		if err := s.clean(names); err != nil {
			return nil, failed("open packs", err)
		}
	}
	return s, nil
}

// clean removes what a killed writer left: its temporary files, and the unfinished packs among those with a mark. A
// pack that is complete only loses its mark. A pack that cannot be read stays, with its mark.
func (s *Store) clean(names []os.DirEntry) error {
	var temps []string
	removed := false
	for _, n := range names {
		if id, ok := parseMark(n.Name()); ok {
			whole, err := s.whole(id)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil && !whole {
				removed = true
				if err := s.disk.Remove(s.path(id)); err != nil {
					return err
				}
			}
		}
		if isTemp(n.Name()) {
			temps = append(temps, filepath.Join(s.dir, n.Name()))
		}
	}
	if removed {
		if err := s.disk.SyncDir(s.dir); err != nil {
			return err
		}
	}
	for _, path := range temps {
		if err := s.disk.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the file of a pack that has a mark is complete. It returns an error if the file cannot be read
// with the store's keys.
func (s *Store) whole(id PackID) (bool, error) {
	f, err := s.file(id)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var h header
	if err := readAt(f, h[:], 0); err != nil {
		return false, nilIf(err, io.ErrUnexpectedEOF)
	}
	if h == (header{}) {
		return false, nil
	}
	if err := s.keys.readable(id, &h); err != nil {
		return false, err
	}
	x, _, err := s.load(id)
	for n := 0; err == nil && n < x.blockCount(); n++ {
		_, _, err = s.keys.readBlock(x, f, n)
	}
	return err == nil, nilIf(err, ErrDamaged)
}

// nilIf returns nil if err is target, else err.
func nilIf(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// unfinished reports whether the file of a pack is a spare file, or one that its writer did not complete. If that
// cannot be found out, it returns false.
func (s *Store) unfinished(id PackID) bool {
	// A spare file gets its mark before its name, and loses the mark when the pack is complete.
	if _, err := os.Lstat(s.mark(id)); err != nil {
		return false
	}
	whole, err := s.whole(id)
	return err == nil && !whole
}

// List returns the packs in the directory, sorted by id. It reads only files that have a mark, and leaves out
// unfinished ones.
func (s *Store) List() ([]File, error) {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, failed("list packs", err)
	}
	var out []File
	for _, n := range names {
		id, ver, ok := parseName(n.Name())
		if !ok || ver != version {
			continue
		}
		info, err := n.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // the pack was removed since the directory was read
		}
		if err != nil {
			return nil, failed("list packs", err)
		}
		if s.unfinished(id) {
			continue
		}
		out = append(out, File{ID: id, Bytes: info.Size(), ModTime: info.ModTime()})
	}
	return out, nil
}

// Stat describes a pack. It reads and checks the index of the pack, but not the blobs.
func (s *Store) Stat(id PackID) (Info, error) {
	x, err := s.index(id)
	if err != nil {
		return Info{}, err
	}
	return x.info(), nil
}

// Blobs returns descriptions of the blobs of a pack, in their order in the file. It reads and checks
// the index of the pack, but not the blobs.
func (s *Store) Blobs(id PackID) (iter.Seq[Blob], error) {
	x, err := s.index(id)
	if err != nil {
		return nil, err
	}
	return func(yield func(Blob) bool) {
		for _, e := range x.ordered() {
			if !yield(Blob{ID: e.id, Kind: x.block(int(e.block)).kind, Size: int(e.length)}) {
				return
			}
		}
	}, nil
}

// RecordsOf returns the records of a pack, in the order in which they were stored.
func (s *Store) RecordsOf(id PackID) ([][]byte, error) {
	_, records, err := s.load(id)
	return records, err
}

// Verify reads a whole pack from disk and checks every byte and every blob. Its error names the
// first damaged part.
func (s *Store) Verify(ctx context.Context, id PackID) error {
	x, _, err := s.load(id)
	if err != nil {
		return err
	}
	return s.blocks(ctx, x, func(n int, b block, data []byte, blobs []entry) error {
		raw, err := s.unpack(x, n, data)
		for _, e := range blobs {
			if err == nil {
				_, err = s.keys.checked(x, b.kind, e, raw)
			}
		}
		return err
	})
}

// Remove removes packs durably. It ignores packs that do not exist. The caller must make sure that
// no Reader or Writer uses the packs.
func (s *Store) Remove(packs ...PackID) error {
	if err := s.writable(); err != nil {
		return err
	}
	for _, id := range packs {
		s.indexes.drop(id)
		if err := s.disk.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed("remove pack "+id.String(), err)
		}
	}
	if len(packs) == 0 {
		return nil
	}
	return failed("remove packs", s.disk.SyncDir(s.dir))
}

// Release frees the memory of the cached indexes. The store remains usable.
func (s *Store) Release() { s.indexes.clear() }

func (s *Store) writable() error {
	if s.readOnly {
		return holdfast.Errorf(holdfast.KindConflict, "packs", "the pack directory %s is open read-only", s.dir)
	}
	return nil
}

// index returns the index of a pack from the cache or from the disk.
func (s *Store) index(id PackID) (*index, error) {
	if x, ok := s.indexes.get(id); ok {
		return x, nil
	}
	x, _, err := s.load(id)
	if err != nil {
		return nil, err
	}
	s.indexes.put(id, x, x.memory())
	return x, nil
}

// load reads the index and the records of a pack from the disk.
func (s *Store) load(id PackID) (*index, [][]byte, error) {
	f, err := s.file(id)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, unread(id, "file", err)
	}
	return s.keys.readIndex(id, f, info.Size())
}

func (s *Store) file(id PackID) (*os.File, error) {
	f, err := os.Open(s.path(id))
	if err != nil {
		return nil, unread(id, "file", err)
	}
	return f, nil
}

// visitor gets block n of a pack: data is the checked block, still compressed; blobs are the entries of its blobs in
// their order.
type visitor func(n int, b block, data []byte, blobs []entry) error

// blocks calls visit for each block of a pack, in the order of the file.
func (s *Store) blocks(ctx context.Context, x *index, visit visitor) error {
	f, err := s.file(x.id)
	if err != nil {
		return err
	}
	defer f.Close()
	all := x.ordered()
	for n := range x.blockCount() {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, data, err := s.keys.readBlock(x, f, n)
		if err != nil {
			return err
		}
		count := 0
		for count < len(all) && all[count].block == uint32(n) {
			count++
		}
		if err := visit(n, b, data, all[:count]); err != nil {
			return err
		}
		all = all[count:]
	}
	return nil
}

// unpack decompresses block n of a pack; data is the stored block, decrypted.
func (s *Store) unpack(x *index, n int, data []byte) ([]byte, error) {
	b := x.block(n)
	if b.coding == codingRaw {
		return data, nil
	}
	raw, err := s.codec.decompress(data, int(b.raw))
	if err != nil {
		return nil, damaged(x.id, "block %d: it cannot be decompressed (%v)", n, err)
	}
	return raw, nil
}

// failed turns an error of the file system into a *holdfast.Error, which has a Kind.
func failed(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		return holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err).
			WithHint("free space in the data directory, and make it writable")
	case errors.Is(err, fs.ErrNotExist):
		return holdfast.Errorf(holdfast.KindNotFound, op, "%w", err)
	}
	return holdfast.Errorf(holdfast.KindInternal, op, "%w", err)
}

// unread turns an error from reading a pack into one with a Kind that names the pack, and the part if the file ends
// within it.
func unread(id PackID, part string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return holdfast.Errorf(holdfast.KindNotFound, "pack "+id.String(), "the pack does not exist: %w", fs.ErrNotExist)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(id, "%s: the file ends within it", part)
	}
	return failed("pack "+id.String(), err)
}
