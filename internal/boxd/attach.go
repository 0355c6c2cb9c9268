package boxd

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// offsetLen is the length of the offset (a big-endian uint64) that precedes the bytes in an output frame.
	offsetLen = 8
	// outBuf is about how many bytes of output an attached stream writes at once.
	outBuf = 64 << 10
	// hangup is the time from SIGTERM to SIGKILL for a terminal call with KillOnDetach whose client has gone away.
	hangup = 2 * time.Second
)

var outBufs = sync.Pool{New: func() any { b := make([]byte, 0, outBuf); return &b }}

// serveExec starts an exec call or attaches to one, and sends its output until it ends or the client goes away.
func (s *Server) serveExec(of *change, stream *yamux.Stream, r *wire.Reader, req wire.Request) error {
	b, err := body[wire.ExecBody](req)
	if err != nil {
		return err
	}
	if b.Attach.StdoutFrom < 0 || b.Attach.StderrFrom < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd exec", "the stdout offset %d or the stderr offset %d to attach at is negative", b.Attach.StdoutFrom, b.Attach.StderrFrom)
	}
	a := &attachment{
		s: s, p: of.peer, of: of, stream: stream, outOff: b.Attach.StdoutFrom, errOff: b.Attach.StderrFrom,
		gone: make(chan struct{}), ready: make(chan struct{}), over: make(chan struct{}),
	}
	defer close(a.over)
	go a.input(r)
	c, fresh, err := s.beginExec(a, req, b)
	if c == nil || err != nil {
		return err
	}
	if c.exec == nil {
		return sendOutcome(of, stream, c)
	}
	a.c, a.e = c, c.exec
	select {
	case <-a.e.started:
	case <-of.done:
		return nil
	}
	if c.exec.req.Lines {
		c.exec.stdout.release(a.outOff)
	}
	a.begin()
	whole := a.output(!fresh)
	if !whole && a.e.req.KillOnDetach {
		s.detached(c)
	}
	return nil
}

// detached ends a call with KillOnDetach after its client has gone away. The call is released when it has ended.
func (s *Server) detached(c *call) {
	grace := time.Duration(0)
	if c.exec.req.PTY != nil {
		grace = hangup
	}
	s.led.forgetWhenDone(c)
	if c.exec.beginKill(endCanceled, "its client went away") {
		s.killSoftly(c.exec, grace)
	}
}

// beginExec finds the call of a request or starts it; the second result is true if it started the call.
// It returns a nil call and no error if the call was not started because the client went away, the
// connection was replaced or the box stopped while the gate was closed.
func (s *Server) beginExec(a *attachment, req wire.Request, b wire.ExecBody) (*call, bool, error) {
	p := a.p
	if b.AttachOnly {
		c, err := s.led.find(p, req)
		if c == nil && err == nil {
			err = holdfast.Errorf(holdfast.KindNotFound, "boxd exec", "no call %s is held by this box", holdfast.Quote(string(req.Call)))
		}
		return c, false, err
	}
	if err := checkCall(req, wire.ArgumentHash(wire.OpExec, b.Exec)); err != nil {
		return nil, false, err
	}
	var x wire.ExecRequest
	if err := decode(req.Op, b.Exec, &x); err != nil {
		return nil, false, err
	}
	x.Env = mergeEnv(b.Env, x.Env)
	if err := checkExec(&x); err != nil {
		return nil, false, err
	}
	if err := wire.CheckLayers(b.Layers); err != nil {
		return nil, false, err
	}
	if c, err := s.led.find(p, req); c != nil || err != nil {
		return c, false, err
	}
	if !s.gate.enter(p.done, a.gone, s.stopped) {
		return nil, false, nil
	}
	defer s.gate.leave()
	m, err := s.members.hold(req.Session)
	if err != nil {
		return nil, false, err
	}
	defer m.done()
	c, fresh, err := s.led.begin(p, req, func(c *call) {
		c.exec = s.newExecution(x)
		if m != nil {
			c.exec.place, c.exec.mark = m.place, m.n<<markShift|c.exec.mark
		}
		c.exec.layers, c.exec.watch = b.Layers, b.Watch
	})
	if err == nil && fresh {
		s.run(c)
	}
	return c, fresh, err
}

// attachment is a stream of a client that is attached to an exec call.
type attachment struct {
	s              *Server
	p              *peer
	of             *change
	c              *call
	e              *execution
	stream         *yamux.Stream
	outOff, errOff int64
	// gone is closed when the client has ended its side of the stream. ready is closed when c and e are
	// set and the call has started. over is closed when boxd is done with the stream.
	gone, ready, over chan struct{}

	// mu is held while a frame is queued or served, so that the frames queued before begin are served before later frames.
	mu    sync.Mutex
	begun bool
	early []inFrame
}

type inFrame struct {
	t       wire.FrameType
	payload []byte
}

// earlyMost is how many bytes of frames are queued for a call that has not started. After these, input
// stops reading until the call has started, and so notices the end of the stream only then.
const earlyMost = 256 << 10

// input reads and serves the client's frames until the client ends its side of the stream. It queues frames that arrive
// before the call has started. It reads on meanwhile, up to earlyMost bytes, so that it notices the end of the stream.
func (a *attachment) input(r *wire.Reader) {
	defer func() {
		close(a.gone)
		// The client has ended its side: end a write to the stream that may be blocked.
		_ = a.stream.SetWriteDeadline(past)
	}()
	early := 0
	for {
		t, payload, err := r.Next()
		if err != nil {
			return
		}
		a.mu.Lock()
		if !a.begun {
			a.early = append(a.early, inFrame{t, slices.Clone(payload)})
			a.mu.Unlock()
			if early += len(payload) + wire.HeadLen; early < earlyMost {
				continue
			}
			select {
			case <-a.ready:
			case <-a.over:
				return
			}
			continue
		}
		ok := a.serveFrame(t, payload)
		a.mu.Unlock()
		if !ok {
			return
		}
	}
}

// begin serves the queued frames of the client. Later frames are served when they arrive.
func (a *attachment) begin() {
	a.mu.Lock()
	a.begun = true
	early := a.early
	a.early = nil
	close(a.ready)
	if len(early) == 0 {
		a.mu.Unlock()
		return
	}
	go func() {
		defer a.mu.Unlock()
		for _, f := range early {
			if !a.serveFrame(f.t, f.payload) {
				return
			}
		}
	}()
}

// serveFrame serves one frame of the client. It returns false if no more frames are accepted from this client.
func (a *attachment) serveFrame(t wire.FrameType, payload []byte) bool {
	switch t {
	case wire.FrameStdin:
		return a.e.stdin == nil || a.e.stdin.write(payload, a)
	case wire.FrameEOF:
		return a.e.stdin == nil || a.guard(func() { a.e.stdin.end(a) }) == nil
	case wire.FrameResize:
		var size wire.Size
		if a.e.tty != nil && json.Unmarshal(payload, &size) == nil {
			return a.guard(func() { _ = setSize(a.e.tty, size) }) == nil
		}
	case wire.FrameSignal:
		var sig wire.Signal
		if json.Unmarshal(payload, &sig) == nil {
			return a.guard(func() { a.signal(sig.Signal) }) == nil
		}
	default:
		return false
	}
	return true
}

// guard runs fn, or returns an error if another connection has replaced that of the client (HZ-3).
func (a *attachment) guard(fn func()) error { return a.s.led.guard(a.p, fn) }

// signal sends sig to the foreground process group of the call's terminal. If the call has no terminal or this fails,
// it sends sig to the process group of the leader.
func (a *attachment) signal(sig int) {
	if a.e.proc == nil || sig < 1 || sig > 64 {
		return
	}
	if a.e.tty != nil && ttySignal(a.e.tty, sig) == nil {
		return
	}
	_ = a.s.cfg.Hands.Signal(a.e.proc, sig)
}

// startWait is how long the "started" frame of a new call without stdin, terminal and line protocol is
// held back, so that it can be sent in one write with the first output or the end of the call.
const startWait = 5 * time.Millisecond

// output sends the output of the call and then its answer. It returns false if the client or its connection went away.
func (a *attachment) output(attached bool) bool {
	ch := a.e.subscribe()
	defer a.e.unsubscribe(ch)
	var first []byte
	if a.e.proc != nil {
		started := wire.Started{PID: a.e.proc.PID(), Attached: attached, Lines: a.e.req.Lines}
		if a.e.stdin != nil {
			started.StdinTaken = a.e.stdin.count()
		}
		first, _ = wire.AppendJSON(nil, wire.FrameStarted, started)
	}
	if req := a.e.req; first != nil && !attached && !req.Lines && !req.Stdin && req.PTY == nil {
		soon := time.NewTimer(startWait)
		select {
		case <-ch:
		case <-a.c.done:
		case <-a.gone:
		case <-a.p.done:
		case <-soon.C:
		}
		soon.Stop()
	}
	for {
		final := a.c.finished()
		more, ok := a.send(first, final)
		first = nil
		if !ok {
			return false
		}
		if more {
			continue
		}
		if final {
			return true
		}
		select {
		case <-ch:
		case <-a.c.done:
		case <-a.gone:
			return false
		case <-a.p.done:
			return false
		}
	}
}

// send writes first and then available output, about one buffer at most. If the call has ended (final) and no output is
// left, it also writes the answer. more is true if output is left, ok is false if the stream cannot be written.
func (a *attachment) send(first []byte, final bool) (more, ok bool) {
	bp := outBufs.Get().(*[]byte)
	defer outBufs.Put(bp)
	buf := append((*bp)[:0], first...)
	most := int64(outBuf/2 - 256)
	if a.e.req.Lines {
		most = lineFrame
	}
	buf, a.outOff, more = appendOutput(buf, most, wire.FrameStdout, a.e.stdout, a.outOff, final)
	if a.e.stderr != nil {
		var m bool
		buf, a.errOff, m = appendOutput(buf, outBuf/2-256, wire.FrameStderr, a.e.stderr, a.errOff, final)
		more = more || m
	}
	if !more && final {
		buf = a.of.report(buf)
		if a.c.err != nil {
			buf, _ = wire.AppendJSON(buf, wire.FrameError, a.c.err)
		} else {
			buf, _ = wire.AppendLong(buf, wire.FrameAnswer, a.c.answer)
		}
	}
	if len(buf) > 0 {
		if !more && final {
			a.p.mux.Last(a.stream.StreamID())
		}
		if _, err := a.stream.Write(buf); err != nil {
			return false, false
		}
	}
	if cap(buf) <= outBuf {
		*bp = buf
	}
	return more, true
}

// appendOutput appends to buf a frame with output of the spool: at most the number of bytes in most, from offset off on.
// It returns buf, the offset after these bytes, and whether more output can be read at once.
func appendOutput(buf []byte, most int64, t wire.FrameType, sp *spool, off int64, final bool) ([]byte, int64, bool) {
	const head = wire.HeadLen + offsetLen
	space := int(min(most, sp.available(off, final)))
	if space <= 0 {
		return buf, off, false
	}
	start := len(buf)
	buf = slices.Grow(buf, head+space)
	at, n, more := sp.read(off, buf[start+head:start+head+space], final)
	if n == 0 {
		return buf, off, more
	}
	buf = buf[:start+head+n]
	buf[start] = byte(t)
	binary.BigEndian.PutUint32(buf[start+1:], uint32(offsetLen+n))
	binary.BigEndian.PutUint64(buf[start+wire.HeadLen:], uint64(at))
	return buf, at + int64(n), more
}
