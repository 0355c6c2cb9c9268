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
	// drainMax is how many bytes are read from a pipe after its leader ended: a pipe holds no
	// more (fs.pipe-max-size).
	drainMax = 1 << 20
	// ttyDrain is how long, after the leader ended, a terminal may take to deliver the leader's output.
	ttyDrain = 200 * time.Millisecond
	// stdinMax is how many bytes of stdin are queued in memory for a process that does not read.
	stdinMax = 1 << 20
	// lineMax is the longest line that a client may send to a line protocol's stdin, in bytes.
	lineMax = 64 << 20
)

var pumpBufs = sync.Pool{New: func() any { return new([pumpChunk]byte) }}

// pump copies one output of a process into its spool. It holds a buffer only while the pipe has
// data to read.
type pump struct {
	r     *os.File
	spool *spool
	tty   bool
	// gone is closed when the leader has ended, drained when the spool has all output of the call.
	gone, drained chan struct{}
}

func newPump(r *os.File, s *spool, tty bool) *pump {
	return &pump{r: r, spool: s, tty: tty, gone: make(chan struct{}), drained: make(chan struct{})}
}

// leaderGone tells the pump that the leader ended: what is in the pipe is the last of the call's output.
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

// readInto reads once, without blocking, and passes the bytes to take.
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

// stdin is the queue of a process's standard input. While the process does not read, only the
// client's later frames wait. For a line protocol it forwards whole lines only: half a line from
// a client that died is dropped.
type stdin struct {
	w     *os.File
	lines bool
	tty   bool

	mu sync.Mutex
	// changed is closed, and replaced by a new channel, at each change of the queue.
	changed chan struct{}
	queue   []byte
	// partial is the unfinished line of the client that wrote last; from is that client.
	partial []byte
	from    *attachment
	// taken is the total number of stdin bytes accepted for the process, without partial lines.
	taken   int64
	eof     bool
	stopped bool
}

func newStdin(w *os.File, lines, tty bool) *stdin {
	return &stdin{w: w, lines: lines, tty: tty, changed: make(chan struct{})}
}

// wake wakes every goroutine that waits for a change of the queue. Callers hold mu.
func (s *stdin) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// write queues p once the queue has room. It returns false when no more input is accepted from
// this client: its stream is over, another connection replaced it, or its line is too long.
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
		return true // the process no longer reads
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

// end closes the process's stdin after the queued input. An unfinished line is forwarded too: the
// client declared that its input is complete.
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

// count returns how many bytes of stdin were accepted, so that a client that reconnects can continue there.
func (s *stdin) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// speak makes the client from the current writer. If another client wrote last, its unfinished line is dropped.
func (s *stdin) speak(from *attachment) {
	if s.from != from {
		s.partial, s.from = nil, from
	}
}

// stop drops queued input, ends run and wakes the writers that wait for room.
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
				_, _ = s.w.Write([]byte{4}) // Ctrl-D, the end of file as a user types it
			}
			return
		default:
			<-changed
		}
	}
}
