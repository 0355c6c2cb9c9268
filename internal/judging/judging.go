// Package judging records on disk which tool calls are being judged, so that a call that crashes
// the server is known after the restart.
//
// Such a call would crash the server at every start: the turn continues, and judges the call again.
// So each judgement is marked in a file while it runs. A start counts each mark in the file as one
// crash of its call; a call that was marked at two crashes in a row is refused without being judged
// again.
//
// It owns one file in the sessions' directory. The engine and internal/approvals import it; it imports durable
// and the vocabulary. Invariant: a mark costs two small writes to the page cache and no fsync. A process
// that dies leaves its marks; a power cut may lose them, and then one crash is not counted. Waiting
// for a person is not judging: the mark is removed meanwhile.
package judging

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// limit is the number of crashes in a row after which a call is refused.
const limit = 2

// By and Reason are the decider and the reason of a denial for a call that is refused.
const (
	By     = "crash guard"
	Reason = "the server ended two times in a row while it judged this call, so it is not judged again; try another way"
)

const (
	// A record in the file is the mark of a call and a number: 0 if the record is empty, underWay
	// while the call is being judged, otherwise the call's number of crashes in a row.
	recordSize = 40
	underWay   = 1<<64 - 1
	// maxFile is the largest part of the file that a start reads, in bytes.
	maxFile = 4 << 20
)

// Mark identifies a tool call by a hash.
type Mark [sha256.Size]byte

// MarkOf returns the mark of a call, from parts that stay the same when its turn is run again.
func MarkOf(parts ...string) Mark {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		_, _ = h.Write(n[:])
		_, _ = io.WriteString(h, p)
	}
	return Mark(h.Sum(nil))
}

// File is the file of marks. Safe for concurrent use; a nil File records nothing and refuses
// nothing.
type File struct {
	path    string
	refused map[Mark]bool

	mu   sync.Mutex
	file *os.File // nil once closed
	free []int64
	end  int64
}

// Open opens the file of marks. It adds one crash to the count of each call that the previous
// server was judging when it ended, and replaces the file's content by these counts, durably if there are any.
func Open(path string) (*File, error) {
	const op = "judging"
	broken := func(err error) error {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the file of judged calls %s cannot be used: %w", holdfast.Quote(path), err).
			WithHint("the server's user must be able to write to the directory %s", filepath.Dir(path))
	}
	counts, err := read(path)
	if err != nil {
		return nil, broken(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, broken(err)
	}
	f := &File{path: path, refused: map[Mark]bool{}}
	var records []byte
	for m, n := range counts {
		if n >= limit {
			f.refused[m] = true
		}
		records = append(records, record(m, n)...)
	}
	f.end = int64(len(records))
	// A file without counts is emptied in place and not synced: if a power cut brings old marks back,
	// one crash too many is counted.
	flags := os.O_RDWR | os.O_CREATE
	if len(counts) == 0 {
		flags |= os.O_TRUNC
	} else if err := durable.Replace(path, durable.Bytes(records)); err != nil {
		return nil, broken(err)
	}
	if f.file, err = os.OpenFile(path, flags, 0o600); err != nil {
		return nil, broken(err)
	}
	return f, nil
}

// read returns, for each call that was being judged when the server ended, its number of crashes in
// a row including this one, at most limit. Other calls start over at 0.
func read(path string) (map[Mark]uint64, error) {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	before, at := map[Mark]uint64{}, map[Mark]bool{}
	for ; len(data) >= recordSize; data = data[recordSize:] {
		m := Mark(data[:sha256.Size])
		switch n := binary.LittleEndian.Uint64(data[sha256.Size:recordSize]); n {
		case 0:
		case underWay:
			at[m] = true
		default:
			before[m] = n
		}
	}
	out := map[Mark]uint64{}
	for m := range at {
		out[m] = min(before[m]+1, limit)
	}
	return out, nil
}

func record(m Mark, n uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(make([]byte, 0, recordSize), m[:]...), n)
}

// Refuses reports whether a call was being judged at too many crashes in a row.
func (f *File) Refuses(m Mark) bool { return f != nil && f.refused[m] }

// Begin marks a call as being judged until End is called on the result.
func (f *File) Begin(m Mark) *Judgement {
	j := &Judgement{f: f, m: m}
	j.mark()
	return j
}

// Judgement is the mark of one call while it is judged. Only one goroutine may use it; a nil
// Judgement does nothing.
type Judgement struct {
	f  *File
	m  Mark
	at int64
	on bool
}

// mark writes the mark to the file. An error, such as a full disk, is ignored: only the mark is
// lost.
func (j *Judgement) mark() {
	f := j.f
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return
	}
	if n := len(f.free); n > 0 {
		j.at, f.free = f.free[n-1], f.free[:n-1]
	} else {
		j.at = f.end
		f.end += recordSize
	}
	j.on = true
	_, _ = f.file.WriteAt(record(j.m, underWay), j.at)
}

// End removes the mark.
func (j *Judgement) End() {
	if j == nil || !j.on {
		return
	}
	f := j.f
	f.mu.Lock()
	defer f.mu.Unlock()
	j.on = false
	if f.file == nil {
		return
	}
	f.free = append(f.free, j.at)
	_, _ = f.file.WriteAt(record(Mark{}, 0), j.at)
}

// Pause removes the mark until resume is called, while the call waits for a person.
func (j *Judgement) Pause() (resume func()) {
	if j == nil || !j.on {
		return func() {}
	}
	j.End()
	return j.mark
}

// key is the context key of a *Judgement.
type key struct{}

// With returns a context that carries a judgement, so that Pause can find it.
func With(ctx context.Context, j *Judgement) context.Context {
	return context.WithValue(ctx, key{}, j)
}

// Pause pauses the judgement that a context carries, if there is one.
func Pause(ctx context.Context) (resume func()) {
	j, _ := ctx.Value(key{}).(*Judgement)
	return j.Pause()
}

// Close closes the file. After a clean end it removes the file, which resets all counts.
func (f *File) Close(clean bool) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	if clean {
		err = errors.Join(err, os.Remove(f.path))
	}
	return err
}
