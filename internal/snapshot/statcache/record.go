package statcache

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Record is what a scan remembers of one entry.
type Record struct {
	// Key is the path with a NUL before each name, "" for the top: so the bytewise order of keys is the order of a walk.
	// The record for the end of a directory comes after everything in the directory; its key is that of the directory and
	// a NUL.
	Key   []byte
	Flags byte
	Stat  Stat
	// Body is the encoded entry; in an end record, the encoded content of the directory.
	Body []byte
}

// Path returns the path of a key; "." for the top.
func Path(key []byte) string {
	if len(key) == 0 {
		return "."
	}
	return strings.ReplaceAll(string(key[1:]), "\x00", "/")
}

// The flags of records.
const (
	// Gone says that an older run has an entry with this key, and the tree does not have it.
	Gone byte = 1 << iota
	// End marks the record at the end of a directory.
	End
	// Again says that the entry may have changed after it was read although its stat is the same.
	Again
	// Recent says that a write may have been under way while the entry was read.
	Recent
	// Moved says that the entry changed while it was read.
	Moved
)

// Stat is the part of an entry's stat by which a scan tells that the entry has not changed.
type Stat struct {
	Size, Mtime, Ctime int64
	Ino                uint64
	Mode               uint32
}

// StatOf returns the stat of an entry.
func StatOf(e rooted.Entry) Stat {
	return Stat{Size: e.Size, Mtime: e.Mtime.UnixNano(), Ctime: e.Ctime.UnixNano(), Ino: e.Ino, Mode: uint32(e.Mode)}
}

// Is reports whether the record has a flag.
func (r *Record) Is(flag byte) bool { return r.Flags&flag != 0 }

// Set makes r a copy of from, which shares no memory with it.
func (r *Record) Set(from *Record) {
	r.Key, r.Body = append(r.Key[:0], from.Key...), append(r.Body[:0], from.Body...)
	r.Flags, r.Stat = from.Flags, from.Stat
}

// Compare orders records as a walk does, with the end of a directory behind everything in it.
func Compare(a, b *Record) int {
	n := min(len(a.Key), len(b.Key))
	if c := bytes.Compare(a.Key[:n], b.Key[:n]); c != 0 {
		return c
	}
	switch {
	case len(a.Key) == len(b.Key):
		return int(a.Flags&End) - int(b.Flags&End)
	case len(a.Key) < len(b.Key) && a.Is(End), len(a.Key) > len(b.Key) && !b.Is(End):
		return 1
	}
	return -1
}

// Run is a sorted sequence of records. A large run is in a file without a name, except for its newest records, which
// are in memory.
type Run struct {
	dir     string
	mem     []byte
	file    *os.File
	written int64
	last    []byte
	n       int
}

// NewRun returns an empty run. If the run becomes large, its file is in the directory dir.
func NewRun(dir string) *Run { return &Run{dir: dir} }

// maxBytes is how many bytes a key or a body has at most.
const maxBytes = 1 << 20

// memoryRun is how many bytes of records a run gathers in memory before it writes them to its file.
const memoryRun = 1 << 20

// Add adds a record, which must come after those that the run has. It does not keep rec.
func (r *Run) Add(rec *Record) error {
	r.mem = appendRecord(r.mem, r.last, rec)
	r.last = append(r.last[:0], rec.Key...)
	r.n++
	if len(r.mem) < memoryRun {
		return nil
	}
	return r.spill()
}

func (r *Run) spill() error {
	if r.file == nil {
		f, err := os.CreateTemp(r.dir, "scan-*")
		if err != nil {
			return err
		}
		r.file = f
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	n, err := r.file.Write(r.mem)
	r.written += int64(n)
	r.mem = r.mem[:0]
	return err
}

// Len returns the number of records in the run.
func (r *Run) Len() int { return r.n }

// Size returns the number of bytes of the encoded records.
func (r *Run) Size() int64 { return r.written + int64(len(r.mem)) }

// reader returns the bytes of the run, which must not change meanwhile.
func (r *Run) reader() io.Reader {
	if r.file == nil {
		return bytes.NewReader(r.mem)
	}
	return io.MultiReader(io.NewSectionReader(r.file, 0, r.written), bytes.NewReader(r.mem))
}

// Records reads the run from its beginning.
func (r *Run) Records() *Reader {
	if r.file == nil {
		return &Reader{from: bytes.NewReader(r.mem)}
	}
	return &Reader{from: bufio.NewReaderSize(r.reader(), 64<<10)}
}

// Close closes the file of the run, if it has one: since the file has no name, the system removes it then.
func (r *Run) Close() {
	if r.file != nil {
		// The file has no name, and nobody needs its content any more.
		_ = r.file.Close()
		r.file = nil
	}
}

// appendRecord encodes a record. Of the key it encodes only what differs from the key of the record before (last).
func appendRecord(b, last []byte, rec *Record) []byte {
	shared := 0
	for shared < min(len(last), len(rec.Key)) && last[shared] == rec.Key[shared] {
		shared++
	}
	b = append(b, rec.Flags)
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(rec.Key)-shared))
	b = append(b, rec.Key[shared:]...)
	if rec.Is(Gone) {
		return b
	}
	if !rec.Is(End) {
		b = binary.AppendUvarint(b, uint64(rec.Stat.Size))
		b = binary.LittleEndian.AppendUint64(b, uint64(rec.Stat.Mtime))
		b = binary.LittleEndian.AppendUint64(b, uint64(rec.Stat.Ctime))
		b = binary.AppendUvarint(b, rec.Stat.Ino)
		b = binary.AppendUvarint(b, uint64(rec.Stat.Mode))
	}
	b = binary.AppendUvarint(b, uint64(len(rec.Body)))
	return append(b, rec.Body...)
}

// Reader reads the records of a run in order.
type Reader struct {
	from interface {
		io.Reader
		io.ByteReader
	}
	// Rec is the current record, if OK; it is valid until Next is called.
	Rec Record
	OK  bool
	Err error
}

// ErrDamaged is the error for a run, or a cache, that is not what a scan wrote.
var ErrDamaged = errors.New("the stat cache is damaged")

// Next goes to the next record. At the end, and after an error, OK is false.
func (r *Reader) Next() {
	r.OK = false
	if r.Err != nil {
		return
	}
	flags, err := r.from.ReadByte()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			r.Err = err
		}
		return
	}
	rec := &r.Rec
	rec.Flags = flags
	shared := r.uvarint()
	if shared > uint64(len(rec.Key)) {
		r.Err = ErrDamaged
		return
	}
	rec.Key = r.bytes(rec.Key[:shared])
	rec.Body, rec.Stat = rec.Body[:0], Stat{}
	if !rec.Is(Gone) {
		if !rec.Is(End) {
			rec.Stat.Size = int64(r.uvarint())
			rec.Stat.Mtime, rec.Stat.Ctime = r.fixed(), r.fixed()
			rec.Stat.Ino, rec.Stat.Mode = r.uvarint(), uint32(r.uvarint())
		}
		rec.Body = r.bytes(rec.Body)
	}
	r.OK = r.Err == nil
}

func (r *Reader) uvarint() uint64 {
	if r.Err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(r.from)
	if err != nil {
		r.Err = ErrDamaged
	}
	return v
}

func (r *Reader) fixed() int64 {
	var b [8]byte
	r.read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// bytes reads a string, which is stored after its length, and appends it to b.
func (r *Reader) bytes(b []byte) []byte {
	n := r.uvarint()
	if r.Err != nil || n > maxBytes {
		r.Err = ErrDamaged
		return b
	}
	at := len(b)
	b = slices.Grow(b, int(n))[:at+int(n)]
	r.read(b[at:])
	return b
}

func (r *Reader) read(b []byte) {
	if r.Err != nil {
		return
	}
	if _, err := io.ReadFull(r.from, b); err != nil {
		r.Err = ErrDamaged
	}
}

// Merged reads several runs as one. Of records with the same key it returns the one of the first run that has the key.
type Merged struct {
	runs []*Reader
	// at says for each run whether its present record has the current key: Next moves these runs on.
	at []bool
	// Rec is the current record; nil at the end.
	Rec *Record
}

// Merge returns the runs as one; the newest run must be the first.
func Merge(runs ...*Reader) *Merged {
	m := &Merged{runs: runs, at: make([]bool, len(runs))}
	for i := range m.at {
		m.at[i] = true
	}
	return m
}

// Next moves to the record with the next key, in the order of Compare.
func (m *Merged) Next() error {
	m.Rec = nil
	for i, r := range m.runs {
		if m.at[i] {
			r.Next()
			m.at[i] = false
		}
		if r.Err != nil {
			return r.Err
		}
		if !r.OK {
			continue
		}
		c := -1
		if m.Rec != nil {
			c = Compare(&r.Rec, m.Rec)
		}
		if c > 0 {
			continue
		}
		if c < 0 {
			clear(m.at[:i])
			m.Rec = &r.Rec
		}
		m.at[i] = true
	}
	return nil
}

// There moves to the next key whose newest record is not flagged as Gone: to the next entry, or end of a directory,
// that exists.
func (m *Merged) There() error {
	for {
		if err := m.Next(); err != nil || m.Rec == nil || !m.Rec.Is(Gone) {
			return err
		}
	}
}
