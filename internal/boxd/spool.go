package boxd

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// spoolMemory is how many bytes one spool holds in memory before it moves to a file.
	spoolMemory = 64 << 10
	// spoolMemoryAll is how many bytes all spools of a boxd together hold in memory.
	spoolMemoryAll = 8 << 20
	// spoolFallback is the size of the tail that is held in memory when the disk accepts no more.
	spoolFallback = 32 << 10
	// spoolLeast is the size of the tail in memory if the disk accepts no more and memory is short too.
	spoolLeast = 1 << 10
	// lineFrame is the longest line that is sent in one frame.
	lineFrame = wire.MaxFrame - offsetLen
)

// spoolPool holds the limits and the memory budget that all spools of one boxd share.
type spoolPool struct {
	// limit is how many bytes one spool holds at most.
	limit int64
	// file makes an unlinked file. The field is nil if the disk accepts no files.
	file   func() (*os.File, error)
	memory atomic.Int64
}

// spool holds one output stream of one call, readable from any offset until the spool is closed.
// It starts in memory and continues in an unlinked file. Beyond the pool's limit it holds the
// head and a ring of the newest bytes: the bytes between are gone, and readers notice a jump of
// offsets.
//
// If lines is set, there is no head, the ring has the size of the whole limit, and Write waits while
// it is full of output that no server has taken. Such output is lost only when the call is being
// killed, because Write waits no longer, or the disk fails, because a smaller ring starts in memory.
//
// One goroutine writes; any number may read.
type spool struct {
	pool *spoolPool
	// changed is called after each write, outside the lock.
	changed func()
	lines   bool

	mu   sync.Mutex
	room *sync.Cond
	// end is the logical offset after the last byte written.
	end int64
	// The head is the output from offset 0 to headEnd. It is in mem while file is nil, afterwards in the file.
	mem     []byte
	file    *os.File
	headEnd int64
	headCap int64
	// The tail ring holds [tailStart(), end). The first offset ever written to it is tailBase.
	tailBase, tailCap int64
	// tailMem is the ring once the disk has failed; while it is nil, the ring is in the file behind the head.
	tailMem []byte
	ring    bool
	// taken is the offset up to which a server has taken the output.
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

// Write stores p. It never fails: bytes that cannot be stored are dropped, and counts reports them.
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
			// Readers must learn of the output first, or none of it is taken and Write waits forever.
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

// untakenCap is how many bytes of output not yet taken a line protocol may hold.
func (s *spool) untakenCap() int64 {
	if s.ring {
		return s.tailCap
	}
	return s.pool.limit
}

// release lets the spool overwrite the output before off: a server has taken it.
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

// fitsMemory reserves n bytes of memory if the budgets of the spool and of the pool allow it.
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

// leaveMemory moves the output to a file. If no file can be made, the bytes in memory become the
// head, which grows no more.
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
					// The ring begins with the bytes that memory held.
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

// tailStart returns the first offset that the ring still holds.
func (s *spool) tailStart() int64 { return max(s.tailBase, s.end-s.tailCap) }

// read copies output from offset off on into buf. It returns the offset of the first byte copied
// (more than off where bytes were dropped), how many bytes, and whether more can be read at once.
// If lines is set, it stops at a line end, unless final is set or the line is longer than a
// frame.
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

// available returns how many bytes a read from off can return.
func (s *spool) available(off int64, final bool) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	off, stop := s.readable(off, final)
	return stop - off
}

// readable returns the offset where a read from off begins and the offset where it must stop.
func (s *spool) readable(off int64, final bool) (from, stop int64) {
	if s.closed {
		return off, off
	}
	stop = s.end
	if s.lines && !final && s.lastLine < s.end && s.end-max(off, s.lastLine) < lineFrame && !s.stalled() {
		stop = s.lastLine // the newest line is incomplete: hold it back while it may fit a frame
	}
	if s.gap(off) {
		off = s.tailStart()
	}
	return off, max(stop, off)
}

// gap reports whether off is in the dropped bytes between head and tail.
func (s *spool) gap(off int64) bool {
	return s.end > s.headEnd && off >= s.headEnd && off < s.tailStart()
}

// copyAt copies bytes from one contiguous piece: memory, head, or a part of the ring.
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

// free lets Write continue without waiting for a server: the call is being killed.
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

// close frees the memory and the file of the spool.
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
