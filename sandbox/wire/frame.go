package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// HeadLen is the length of a frame's head: the type and the 4-byte length.
const HeadLen = 5

// MaxLong is the longest JSON of one request or answer, in bytes, pieces together.
const MaxLong = 8 << 20

// AppendFrame appends one frame to buf, for several frames in one Write. It
// refuses payloads over MaxFrame.
func AppendFrame(buf []byte, t FrameType, payload []byte) ([]byte, error) {
	if len(payload) > MaxFrame {
		return buf, holdfast.Errorf(holdfast.KindTooLarge, "wire", "frame of %d bytes is over %d", len(payload), MaxFrame)
	}
	buf = append(buf, byte(t), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(buf[len(buf)-4:], uint32(len(payload)))
	return append(buf, payload...), nil
}

// AppendLong appends a request, an answer or an error. JSON longer than a frame
// goes as FrameData pieces before the frame of type t, which holds the rest.
func AppendLong(buf []byte, t FrameType, payload []byte) ([]byte, error) {
	if len(payload) > MaxLong {
		return buf, holdfast.Errorf(holdfast.KindTooLarge, "wire", "message of %d bytes is over %d", len(payload), MaxLong)
	}
	for len(payload) > MaxFrame {
		buf, _ = AppendFrame(buf, FrameData, payload[:MaxFrame])
		payload = payload[MaxFrame:]
	}
	return AppendFrame(buf, t, payload)
}

// AppendJSON is AppendLong of v as JSON.
func AppendJSON(buf []byte, t FrameType, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return buf, fmt.Errorf("wire: %w", err)
	}
	return AppendLong(buf, t, b)
}

// Reader reads frames through a buffer of its own, which it reuses. It reads
// ahead, so nothing else may read from the same source after it.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int
}

// NewReader makes a Reader. The buffer starts at 4 KiB and grows to the longest frame.
func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Reset makes the Reader read from src, keeping its buffer.
func (r *Reader) Reset(src io.Reader) {
	r.src, r.start, r.end = src, 0, 0
}

// Next reads one frame. The payload is valid until the next call. Its errors
// are those of ReadFrame.
func (r *Reader) Next() (FrameType, []byte, error) {
	if err := r.fill(HeadLen); err != nil {
		return 0, nil, err
	}
	head := r.buf[r.start : r.start+HeadLen]
	t := FrameType(head[0])
	if !t.known() {
		return 0, nil, holdfast.Errorf(holdfast.KindInvalid, "wire", "unknown frame type %q", head[0])
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, holdfast.Errorf(holdfast.KindTooLarge, "wire", "frame of %d bytes is over %d", n, MaxFrame)
	}
	if err := r.fill(HeadLen + int(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	payload := r.buf[r.start+HeadLen : r.start+HeadLen+int(n)]
	r.start += HeadLen + int(n)
	return t, payload, nil
}

// NextLong reads one message: FrameData pieces and the frame that ends it. When
// the first frame is not FrameData it is that frame alone.
func (r *Reader) NextLong() (FrameType, []byte, error) {
	t, payload, err := r.Next()
	if err != nil || t != FrameData {
		return t, payload, err
	}
	var whole []byte
	for t == FrameData {
		if len(whole)+len(payload) > MaxLong {
			return 0, nil, holdfast.Errorf(holdfast.KindTooLarge, "wire", "message is over %d bytes", MaxLong)
		}
		whole = append(whole, payload...)
		if t, payload, err = r.Next(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
	}
	return t, append(whole, payload...), nil
}

// fill makes n bytes available from start on. It is io.EOF only when nothing was there.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.end -= r.start
		r.start = 0
	}
	if len(r.buf) < n {
		size := max(4<<10, len(r.buf))
		for size < n {
			size *= 2
		}
		size = min(size, HeadLen+MaxFrame)
		r.buf = slices.Grow(r.buf[:r.end], size-r.end)[:size]
	}
	for r.end < n {
		m, err := r.src.Read(r.buf[r.end:])
		r.end += m
		if err != nil && r.end < n {
			if err == io.EOF && r.end > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Coalesce wraps the connection below the multiplexer so that a data frame's
// head and body, and the opening of a stream and its first data, leave in one
// write. It holds back what the multiplexer follows up at once, and the acceptance
// of a stream, for which nobody waits, until the next write.
func Coalesce(conn net.Conn) *Coalesced { return &Coalesced{Conn: conn} }

// Coalesced is such a connection. Each write wakes the other side.
type Coalesced struct {
	net.Conn
	mu   sync.Mutex
	held []byte
	// body says that the held bytes end with the head of data that comes next, of
	// the stream of.
	body bool
	of   uint32
	// ends are the streams whose end waits for data to go along with; last is the
	// stream whose data waits for its end, 0 is none.
	ends []uint32
	last uint32
}

// The multiplexer's frame head: version, type, flags (2), stream (4), length (4).
const (
	muxHead   = 12
	muxData   = 0
	muxWindow = 1
	muxSYN    = 1
	muxACK    = 2
	muxFIN    = 4
)

// heldMost bounds what is held back, in bytes. While that is heldACKs or more, acceptances are
// not held: the multiplexer opens at most 256 streams that were not accepted.
const (
	heldMost = 32 << 10
	heldACKs = 64 * muxHead
)

// Ends announces that the caller closes these streams now. The frames that end them need not be
// sent at once: they are held, and go with the next write.
func (c *Coalesced) Ends(streams []uint32) {
	c.mu.Lock()
	c.ends = streams
	c.mu.Unlock()
}

// Last says that the caller writes the last data of a stream and then, whatever
// becomes of it, ends the stream at once. What is held goes with the next write of
// any other stream, so none waits for another.
func (c *Coalesced) Last(stream uint32) {
	c.mu.Lock()
	c.last = stream
	c.mu.Unlock()
}

// Write is called by the multiplexer's one sender: heads and bodies alternate.
func (c *Coalesced) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds(p) && len(c.held)+len(p) <= heldMost {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	var err error
	switch {
	case len(c.held) == 0:
		return c.Conn.Write(p)
	case len(p) > heldMost:
		bufs := net.Buffers{c.held, p}
		_, err = bufs.WriteTo(c.Conn)
	default:
		c.held = append(c.held, p...)
		_, err = c.Conn.Write(c.held)
	}
	c.held = c.held[:0]
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// holds reports whether more follows p at once.
func (c *Coalesced) holds(p []byte) bool {
	if c.body || len(p) != muxHead || p[0] != 0 {
		c.body = false
		return c.of == c.last && c.last != 0
	}
	flags, length := binary.BigEndian.Uint16(p[2:]), binary.BigEndian.Uint32(p[8:])
	c.of = binary.BigEndian.Uint32(p[4:])
	switch {
	case p[1] == muxData && length > 0:
		c.body = true
		return true
	case p[1] == muxWindow && flags&muxFIN != 0:
		if c.of == c.last {
			c.last = 0
		}
		return slices.Contains(c.ends, c.of)
	}
	return p[1] == muxWindow && length == 0 && (flags == muxSYN || flags == muxACK && len(c.held) < heldACKs)
}
