package statcache

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// The stat cache is a file with a header, a base, and changes that were appended later. The base has a record for each
// entry, and one for the end of each directory. Header, base and each batch of changes have a checksum. The cache is
// not part of the snapshot's format: one that is cut, damaged, of another version or of another root is ignored.
const (
	cacheMagic   = "HFSTAT\x00\x01"
	cacheHeader  = len(cacheMagic) + len(pack.ID{}) + 5*8 + 4
	changeHeader = 8
	// leastRewrite is how many bytes of changes a cache may have, whatever the size of its base, before it is written as a
	// whole.
	leastRewrite = 4 << 10
	// mostChanges is how many bytes of changes a cache may have at most, because a scan holds them in memory.
	mostChanges = 8 << 20
)

// Cache is the stat cache of a tree.
type Cache struct {
	path string
	file *os.File
	Head Head
	// small holds the base in memory if the base is small; else the base stays in the file.
	small []byte
	// changes holds the changes since the base, sorted.
	changes *Run
}

// Head is the header of a cache.
type Head struct {
	Root pack.ID
	// Cursor is the place on the circle of Rehash up to which the last scan read files again, Time is when that scan was,
	// in nanoseconds since 1970.
	Cursor, Time int64
	// base is the length of the base, total that of the valid part of the file, sum the checksum of the base.
	base, total, sum int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h Head) encode() []byte {
	b := append(append(make([]byte, 0, cacheHeader), cacheMagic...), h.Root[:]...)
	for _, v := range []int64{h.Cursor, h.Time, h.base, h.total, h.sum} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (h *Head) decode(b []byte) bool {
	n := len(b) - 4
	if string(b[:len(cacheMagic)]) != cacheMagic || crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return false
	}
	b = b[len(cacheMagic):]
	b = b[copy(h.Root[:], b):]
	for _, v := range []*int64{&h.Cursor, &h.Time, &h.base, &h.total, &h.sum} {
		*v = int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	return true
}

// Open opens the cache in the directory dir, and makes the directory if it does not exist. A cache that does not belong
// to root is treated as empty.
func Open(dir string, root pack.ID) (c *Cache, err error) {
	c = &Cache{path: filepath.Join(dir, "stat"), changes: NewRun(dir)}
	if root == (pack.ID{}) {
		return c, os.MkdirAll(dir, 0o700)
	}
	c.file, err = openPlain(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	if err := c.load(root); err != nil {
		c.Close()
		if !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		c.small, c.changes, c.Head = nil, NewRun(dir), Head{}
	}
	return c, nil
}

// openPlain opens a file for reading and writing. os.OpenFile would try, in five more system calls, to have the poller
// watch it, which no regular file can be.
func openPlain(path string) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		default:
			return os.NewFile(uintptr(fd), path), nil
		}
	}
}

// load reads and checks the cache's file. It returns ErrDamaged if the file is damaged or belongs to another root.
func (c *Cache) load(root pack.ID) error {
	first := make([]byte, 4<<10)
	n, err := io.ReadFull(c.file, first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || n < cacheHeader {
		return ErrDamaged
	}
	if !c.Head.decode(first[:cacheHeader]) || c.Head.Root != root {
		return ErrDamaged
	}
	all := io.MultiReader(bytes.NewReader(first[cacheHeader:n]), c.file)
	sum := crc32.New(castagnoli)
	if c.Head.base <= memoryRun {
		c.small = make([]byte, c.Head.base)
		if _, err := io.ReadFull(all, c.small); err != nil {
			return ErrDamaged
		}
		_, _ = sum.Write(c.small)
	} else if _, err := io.CopyN(sum, all, c.Head.base); err != nil {
		return ErrDamaged
	}
	rest := c.Head.total - int64(cacheHeader) - c.Head.base
	if int64(sum.Sum32()) != c.Head.sum || rest < 0 || rest > 2*mostChanges {
		return ErrDamaged
	}
	changes := make([]byte, rest)
	if _, err := io.ReadFull(all, changes); err != nil {
		return ErrDamaged
	}
	return c.gather(changes)
}

// gather adds the appended changes to c.changes, sorted, and of several changes with the same key only the newest.
func (c *Cache) gather(b []byte) error {
	newest := map[string]*Record{}
	for len(b) > 0 {
		if len(b) < changeHeader {
			return ErrDamaged
		}
		n, sum := int(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:])
		b = b[changeHeader:]
		if n > len(b) || crc32.Checksum(b[:n], castagnoli) != sum {
			return ErrDamaged
		}
		rs := &Reader{from: bytes.NewReader(b[:n])}
		b = b[n:]
		for rs.Next(); rs.OK; rs.Next() {
			rec := &Record{}
			rec.Set(&rs.Rec)
			// The key of an end record differs from that of its directory: it ends with a NUL.
			newest[string(rec.Key)] = rec
		}
		if rs.Err != nil {
			return rs.Err
		}
	}
	if len(newest) == 0 {
		return nil
	}
	sorted := make([]*Record, 0, len(newest))
	for _, rec := range newest {
		sorted = append(sorted, rec)
	}
	slices.SortFunc(sorted, Compare)
	for _, rec := range sorted {
		if err := c.changes.Add(rec); err != nil {
			return err
		}
	}
	return nil
}

// Runs returns readers of the records of the cache: first of the changes, then of the base.
func (c *Cache) Runs() []*Reader {
	base := &Reader{from: bytes.NewReader(c.small)}
	if c.small == nil && c.file != nil {
		base = &Reader{from: bufio.NewReaderSize(io.NewSectionReader(c.file, int64(cacheHeader), c.Head.base), 64<<10)}
	}
	return []*Reader{c.changes.Records(), base}
}

// Exists reports whether the tree has a cache that may be used.
func (c *Cache) Exists() bool { return c.file != nil }

// Full reports whether the cache must be written as a whole: always if no usable cache exists, and if more further
// bytes of changes would make the changes too long.
func (c *Cache) Full(more int64) bool {
	if c.file == nil {
		return true
	}
	changes := c.Head.total - int64(cacheHeader) - c.Head.base + more
	return changes > max(c.Head.base/2, leastRewrite) || changes > mostChanges
}

// Append appends changes to the file, and writes the header h.
func (c *Cache) Append(changes *Run, h Head) error {
	h.base, h.total, h.sum = c.Head.base, c.Head.total, c.Head.sum
	if n := changes.Size(); n > 0 {
		b := make([]byte, changeHeader, changeHeader+n)
		body, err := io.ReadAll(changes.reader())
		if err != nil {
			return err
		}
		b = append(b, body...)
		binary.LittleEndian.PutUint32(b, uint32(n))
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(body, castagnoli))
		if _, err := c.file.WriteAt(b, h.total); err != nil {
			return err
		}
		h.total += int64(len(b))
	}
	_, err := c.file.WriteAt(h.encode(), 0)
	return err
}

// Replace writes a new file with the base and the header h in place of the old one.
func (c *Cache) Replace(base *Run, h Head) (err error) {
	h.base = base.Size()
	h.total = int64(cacheHeader) + h.base
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, base.reader()); err != nil {
		return err
	}
	h.sum = int64(sum.Sum32())
	temp := c.path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(h.encode())
	if err == nil {
		_, err = io.Copy(f, base.reader())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, c.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// Close closes the cache's file and frees its changes.
func (c *Cache) Close() {
	if c.file != nil {
		// The error is ignored: a checksum covers the content, so the next Open notices if a part is missing.
		_ = c.file.Close()
		c.file = nil
	}
	c.changes.Close()
}
