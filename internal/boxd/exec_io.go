package boxd

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// pumpChunk is how many bytes one read of a pipe may return.
	pumpChunk = 32 << 10
	// drainMax is about how many bytes are still read from a pipe after the leader has ended: a pipe holds no more.
	drainMax = 1 << 20
	// ttyDrain is how long output of a terminal is still read after the leader has ended.
	ttyDrain = 200 * time.Millisecond
	// stdinMax is how many bytes of stdin are queued in memory while the process does not read them.
	stdinMax = 1 << 20
	// lineMax is the longest line, in bytes, that a client may send to the stdin of a line protocol.
	lineMax = 64 << 20
)

var pumpBufs = sync.Pool{New: func() any { return new([pumpChunk]byte) }}

// pump copies stdout or stderr of a call into its spool. It uses a buffer only while there is output to read.
type pump struct {
	r     *os.File
	spool *spool
	tty   bool
	// gone is closed when the leader has ended. drained is closed when the spool has all output of the call.
	gone, drained chan struct{}
}

func newPump(r *os.File, s *spool, tty bool) *pump {
	return &pump{r: r, spool: s, tty: tty, gone: make(chan struct{}), drained: make(chan struct{})}
}

// leaderGone tells the pump that the leader has ended. The call gets only the output that is in the pipe now, or that
// comes from a terminal within ttyDrain.
func (p *pump) leaderGone() {
	close(p.gone)
	until := past
	if p.tty {
		until = time.Now().Add(ttyDrain)
	}
	_ = p.r.SetReadDeadline(until)
}

func (p *pump) run() {
	defer p.r.Close()
	raw, err := p.r.SyscallConn()
	if err != nil {
		close(p.drained)
		return
	}
	for {
		var n int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, rerr = readInto(fd, p.spool.Write)
			return rerr != syscall.EAGAIN
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil || rerr != nil || n == 0 {
			<-p.gone
			close(p.drained)
			return
		}
	}
	_ = p.r.SetReadDeadline(time.Time{})
	end := false
	_ = raw.Control(func(fd uintptr) {
		for total := 0; total < drainMax; {
			n, err := readInto(fd, p.spool.Write)
			if err == syscall.EAGAIN {
				return
			}
			if err != nil || n == 0 {
				end = true
				return
			}
			total += n
		}
	})
	close(p.drained)
	for !end {
		var n int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, rerr = readInto(fd, func([]byte) {})
			return rerr != syscall.EAGAIN
		})
		end = err != nil || rerr != nil || n == 0
	}
}

// readInto reads once from fd, a descriptor in non-blocking mode, and calls take with the bytes.
func readInto(fd uintptr, take func([]byte)) (int, error) {
	buf := pumpBufs.Get().(*[pumpChunk]byte)
	defer pumpBufs.Put(buf)
	for {
		n, err := syscall.Read(int(fd), buf[:])
		if err == syscall.EINTR {
			continue
		}
		if n > 0 {
			take(buf[:n])
		}
		return n, err
	}
}

// stdin is the queue for the standard input of a call. If the process does not read and the queue is full,
// later input of the client waits. For a line protocol it forwards only complete lines: if another
// client continues, the incomplete line of the former client is dropped.
type stdin struct {
	w     *os.File
	lines bool
	tty   bool

	mu sync.Mutex
	// changed is closed, and replaced by a new channel, whenever the queue or eof or stopped changes.
	changed chan struct{}
	queue   []byte
	// from is the client that wrote last. partial is its incomplete line, for a line protocol.
	partial []byte
	from    *attachment
	// taken is how many bytes of stdin were accepted in total, without the incomplete line in partial.
	taken   int64
	eof     bool
	stopped bool
}

func newStdin(w *os.File, lines, tty bool) *stdin {
	return &stdin{w: w, lines: lines, tty: tty, changed: make(chan struct{})}
}

// wake wakes the goroutines that wait for a change of the queue. The caller holds mu.
func (s *stdin) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// write queues p; it waits until the queue has room. It returns false if no more input is accepted from this client:
// boxd is done with its stream, another connection has replaced its connection, or its line is too long.
func (s *stdin) write(p []byte, from *attachment) bool {
	for {
		var wait <-chan struct{}
		ok := true
		err := from.guard(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.queue) > 0 && len(s.queue)+len(p) > stdinMax && !s.stopped {
				wait = s.changed
				return
			}
			ok = s.take(p, from)
		})
		if err != nil || wait == nil {
			return err == nil && ok
		}
		select {
		case <-wait:
		case <-from.over:
			return false
		}
	}
}

func (s *stdin) take(p []byte, from *attachment) bool {
	if s.stopped || s.eof {
		return true // drop the input: the call has ended, or its stdin was closed
	}
	s.speak(from)
	before := len(s.queue)
	if s.lines {
		if len(s.partial)+len(p) > lineMax {
			s.partial = nil
			return false
		}
		i := bytes.LastIndexByte(p, '\n') + 1
		if i == 0 {
			s.partial = append(s.partial, p...)
			return true
		}
		s.queue = append(append(s.queue, s.partial...), p[:i]...)
		s.partial = append([]byte(nil), p[i:]...)
	} else {
		s.queue = append(s.queue, p...)
	}
	s.taken += int64(len(s.queue) - before)
	s.wake()
	return true
}

// end makes run close the stdin of the process after the queued input. The client has said that its input
// is complete, so an incomplete line is forwarded too.
func (s *stdin) end(from *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.speak(from)
	if !s.stopped && !s.eof {
		s.queue = append(s.queue, s.partial...)
		s.taken += int64(len(s.partial))
		s.partial, s.eof = nil, true
		s.wake()
	}
}

// count returns how many bytes of stdin were accepted. A client that connects again continues after them.
func (s *stdin) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// speak records that the client from writes now. If another client wrote last, its incomplete line is dropped.
func (s *stdin) speak(from *attachment) {
	if s.from != from {
		s.partial, s.from = nil, from
	}
}

// stop drops the queued input, ends run, and wakes the callers of write that wait for room.
func (s *stdin) stop() {
	s.mu.Lock()
	s.stopped = true
	s.queue, s.partial = nil, nil
	s.wake()
	s.mu.Unlock()
	_ = s.w.SetWriteDeadline(past)
}

func (s *stdin) run() {
	if !s.tty {
		defer s.w.Close() // for a terminal, the goroutine that reads its output closes it
	}
	for {
		s.mu.Lock()
		out, changed := s.queue, s.changed
		s.queue = nil
		last, typed := s.eof || s.stopped, s.tty && !s.stopped
		if len(out) > 0 {
			s.wake()
		}
		s.mu.Unlock()
		switch {
		case len(out) > 0:
			if _, err := s.w.Write(out); err != nil {
				s.stop()
				return
			}
		case last:
			if typed {
				_, _ = s.w.Write([]byte{4}) // Ctrl-D, with which a user of a terminal ends the input
			}
			return
		default:
			<-changed
		}
	}
}
