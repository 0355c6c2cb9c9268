package boxd

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// spoolMemory is how many bytes of output a spool holds in memory. A longer output moves to a file.
	spoolMemory = 64 << 10
	// spoolMemoryAll is how many bytes of output all spools together hold in memory while files can be made.
	spoolMemoryAll = 8 << 20
	// spoolFallback is the size of the tail ring in memory if the disk accepts no more output.
	spoolFallback = 32 << 10
	// spoolLeast is the size of the tail ring in memory if the disk accepts no more output and memory is short as well.
	spoolLeast = 1 << 10
	// lineFrame is the length of the longest line, in bytes, that is sent in one frame.
	lineFrame = wire.MaxFrame - offsetLen
)

// spoolPool holds the limits and the memory budget that all spools of one boxd share.
type spoolPool struct {
	// limit is how many bytes of output one spool holds at most.
	limit int64
	// file makes a file without a name. If file is nil, spools use memory only.
	file   func() (*os.File, error)
	memory atomic.Int64
}

// spool holds one output (stdout or stderr) of a call. Readers can read it from any offset until the spool
// is closed. A short output is in memory, a longer one in a file without a name. If the output is longer
// than the limit of the pool, the spool holds its beginning (head) and its newest bytes (tail ring). The
// bytes between them are dropped: a reader gets a higher offset than it asked for.
//
// If lines is true, there is no head, and the ring is as long as the limit. Write waits while the ring is full of
// output that no server has taken. Output that no server has taken is then lost only if the call is being killed,
// because Write waits no longer, or if the disk fails, because a smaller ring begins in memory.
//
// One goroutine may write, any number may read.
type spool struct {
	pool *spoolPool
	// changed is called after each Write, without the lock.
	changed func()
	lines   bool

	mu   sync.Mutex
	room *sync.Cond
	// end is the offset after the last byte of the output so far, dropped bytes included.
	end int64
	// The head is the output from offset 0 to headEnd. It is in mem if file is nil, otherwise in the file.
	mem     []byte
	file    *os.File
	headEnd int64
	headCap int64
	// The tail ring has the output from tailStart() to end. It began at offset tailBase; tailCap is its size.
	tailBase, tailCap int64
	// tailMem is the ring if it is in memory. If tailMem is nil, the ring is in the file, after the head.
	tailMem []byte
	ring    bool
	// taken is the offset up to which a server has taken the output. With noStall, Write does not wait for it.
	taken   int64
	noStall bool
	closed  bool
	// lastLine is the offset after the last newline written.
	lastLine int64
}

func newSpool(pool *spoolPool, lines bool, changed func()) *spool {
	s := &spool{pool: pool, lines: lines, changed: changed}
	s.room = sync.NewCond(&s.mu)
	return s
}

// Write appends p to the output. If bytes cannot be stored, it drops them; counts returns their number.
func (s *spool) Write(p []byte) {
	for len(p) > 0 {
		n := s.write(p)
		p = p[n:]
	}
	s.changed()
}

// write stores the first bytes of p and returns how many.
func (s *spool) write(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines {
		for s.stalled() {
			// First tell the readers about the output: if they did not take it, Write would wait for ever.
			s.mu.Unlock()
			s.changed()
			s.mu.Lock()
			if s.stalled() {
				s.room.Wait()
			}
		}
		if rest := s.untakenCap() - (s.end - s.taken); !s.noStall && !s.closed && rest < int64(len(p)) {
			p = p[:rest]
		}
	}
	if s.closed {
		s.end += int64(len(p))
		return len(p)
	}
	if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
		s.lastLine = s.end + int64(i) + 1
	}
	if !s.ring {
		if s.fitsMemory(len(p)) {
			s.mem = append(s.mem, p...)
			s.headEnd += int64(len(p))
			s.end += int64(len(p))
			return len(p)
		}
		s.leaveMemory()
	}
	n := s.keepHead(p)
	if n == len(p) {
		return n
	}
	s.keepTail(p[n:])
	return len(p)
}

// untakenCap returns how many bytes the spool of a line protocol may hold before a server has taken them.
func (s *spool) untakenCap() int64 {
	if s.ring {
		return s.tailCap
	}
	return s.pool.limit
}

// release records that a server has taken the output before offset off, so that the spool may overwrite it.
func (s *spool) release(off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off = min(off, s.end); off > s.taken {
		s.taken = off
		s.room.Broadcast()
	}
}

func (s *spool) stalled() bool {
	return !s.noStall && !s.closed && s.end-s.taken >= s.untakenCap()
}

// fitsMemory reports whether the limits of spool and pool allow n more bytes in memory. If so, it counts them.
func (s *spool) fitsMemory(n int) bool {
	if int64(len(s.mem)+n) > min(spoolMemory, s.pool.limit/2) {
		return false
	}
	if s.pool.memory.Add(int64(n)) > spoolMemoryAll {
		s.pool.memory.Add(-int64(n))
		return false
	}
	return true
}

// leaveMemory moves the output from memory to a file. If no file can be made, the bytes in memory become
// the head, which does not grow any more, and a tail ring begins in memory.
func (s *spool) leaveMemory() {
	s.ring = true
	half := s.pool.limit / 2
	if s.lines {
		half = 0
	}
	if s.pool.file != nil {
		if f, err := s.pool.file(); err == nil {
			if _, err := f.WriteAt(s.mem, 0); err == nil {
				s.pool.memory.Add(-int64(len(s.mem)))
				s.mem, s.file = nil, f
				s.headCap, s.tailBase, s.tailCap = half, half, s.pool.limit-half
				if s.lines {
					// There is no head: the bytes in the file are the beginning of the ring.
					s.headEnd = 0
				}
				return
			}
			_ = f.Close()
		}
	}
	s.headCap = s.headEnd
	s.tailInMemory()
}

func (s *spool) tailInMemory() {
	s.headCap = min(s.headCap, s.headEnd)
	s.tailBase, s.tailCap = s.end, min(spoolFallback, s.pool.limit)
	if s.pool.memory.Add(s.tailCap) > 2*spoolMemoryAll {
		s.pool.memory.Add(-s.tailCap)
		s.tailCap = min(spoolLeast, s.pool.limit)
		s.pool.memory.Add(s.tailCap)
	}
	s.tailMem = make([]byte, s.tailCap)
}

func (s *spool) keepHead(p []byte) int {
	n := int(min(int64(len(p)), s.headCap-s.headEnd))
	if n <= 0 || s.end != s.headEnd {
		return 0
	}
	if _, err := s.file.WriteAt(p[:n], s.headEnd); err != nil {
		s.headCap = s.headEnd
		s.tailInMemory()
		return 0
	}
	s.headEnd += int64(n)
	s.end += int64(n)
	return n
}

func (s *spool) keepTail(p []byte) {
	for len(p) > 0 {
		if int64(len(p)) > s.tailCap {
			skip := int64(len(p)) - s.tailCap
			s.end += skip
			p = p[skip:]
		}
		at := (s.end - s.tailBase) % s.tailCap
		n := min(int64(len(p)), s.tailCap-at)
		if s.tailMem != nil {
			copy(s.tailMem[at:], p[:n])
		} else if _, err := s.file.WriteAt(p[:n], s.headCap+at); err != nil {
			s.tailInMemory()
			continue
		}
		s.end += n
		p = p[n:]
	}
}

// tailStart returns the offset of the oldest byte in the ring.
func (s *spool) tailStart() int64 { return max(s.tailBase, s.end-s.tailCap) }

// read copies output from offset off on into buf. It returns the offset of the first byte that it copied (higher than
// off if bytes were dropped there), the number of bytes, and whether more can be read at once. If lines is true, it
// copies complete lines only, except the last one if final is true, and lines that are too long for buf.
func (s *spool) read(off int64, buf []byte, final bool) (at int64, n int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	off, stop := s.readable(off, final)
	for n < len(buf) && off+int64(n) < stop && !s.gap(off+int64(n)) {
		m := s.copyAt(buf[n:min(int64(len(buf)), stop-off)], off+int64(n))
		if m == 0 {
			return off, n, false
		}
		n += m
	}
	if s.lines {
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			n = i + 1
		}
	}
	return off, n, off+int64(n) < stop
}

// available returns how many bytes can be read from offset off on, without those that were dropped at off.
func (s *spool) available(off int64, final bool) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	off, stop := s.readable(off, final)
	return stop - off
}

// readable returns where a read from off begins (after off if bytes were dropped there) and where it must stop.
func (s *spool) readable(off int64, final bool) (from, stop int64) {
	if s.closed {
		return off, off
	}
	stop = s.end
	if s.lines && !final && s.lastLine < s.end && s.end-max(off, s.lastLine) < lineFrame && !s.stalled() {
		stop = s.lastLine // the newest line is incomplete: wait for its end as long as it fits a frame
	}
	if s.gap(off) {
		off = s.tailStart()
	}
	return off, max(stop, off)
}

// gap reports whether the byte at offset off was dropped: it is between the head and the tail ring.
func (s *spool) gap(off int64) bool {
	return s.end > s.headEnd && off >= s.headEnd && off < s.tailStart()
}

// copyAt copies bytes from offset off on, up to the end of the head or the point where the ring wraps around.
func (s *spool) copyAt(buf []byte, off int64) int {
	if off < s.headEnd {
		buf = buf[:min(int64(len(buf)), s.headEnd-off)]
		if s.file == nil {
			return copy(buf, s.mem[off:])
		}
		n, _ := s.file.ReadAt(buf, off)
		return n
	}
	at := (off - s.tailBase) % s.tailCap
	buf = buf[:min(int64(len(buf)), s.tailCap-at)]
	if s.tailMem != nil {
		return copy(buf, s.tailMem[at:])
	}
	n, _ := s.file.ReadAt(buf, s.headCap+at)
	return n
}

// free makes Write wait no more for a server, because the call is being killed.
func (s *spool) free() {
	s.mu.Lock()
	s.noStall = true
	s.room.Broadcast()
	s.mu.Unlock()
}

// counts returns the number of bytes written and of bytes dropped.
func (s *spool) counts() (written, dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end > s.headEnd {
		dropped = s.tailStart() - s.headEnd
	}
	return s.end, dropped
}

// close frees the memory and the file of the spool. Its output can then no longer be read.
func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.pool.memory.Add(-int64(len(s.mem) + len(s.tailMem)))
	s.mem, s.tailMem = nil, nil
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
	s.room.Broadcast()
}
