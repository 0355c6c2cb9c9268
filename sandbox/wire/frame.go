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

// MaxLong is the longest JSON of one request or answer, in bytes, summed over its pieces.
const MaxLong = 8 << 20

// AppendFrame appends one frame to buf, so that several frames can be sent in one Write. It
// refuses payloads over MaxFrame.
func AppendFrame(buf []byte, t FrameType, payload []byte) ([]byte, error) {
	if len(payload) > MaxFrame {
		return buf, holdfast.Errorf(holdfast.KindTooLarge, "wire", "a protocol frame of %d bytes is over the limit of %d", len(payload), MaxFrame)
	}
	buf = append(buf, byte(t), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(buf[len(buf)-4:], uint32(len(payload)))
	return append(buf, payload...), nil
}

// AppendLong appends a request, an answer or an error to buf. If its JSON is longer than
// MaxFrame, FrameData frames hold its beginning and the final frame of type t the rest.
func AppendLong(buf []byte, t FrameType, payload []byte) ([]byte, error) {
	if len(payload) > MaxLong {
		return buf, holdfast.Errorf(holdfast.KindTooLarge, "wire", "a protocol message of %d bytes is over the limit of %d", len(payload), MaxLong)
	}
	for len(payload) > MaxFrame {
		buf, _ = AppendFrame(buf, FrameData, payload[:MaxFrame])
		payload = payload[MaxFrame:]
	}
	return AppendFrame(buf, t, payload)
}

// AppendJSON encodes v as JSON and appends it with AppendLong.
func AppendJSON(buf []byte, t FrameType, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return buf, fmt.Errorf("cannot encode a message for the connection between server and boxd: %w", err)
	}
	return AppendLong(buf, t, b)
}

// Reader reads frames from a source through a buffer that it reuses. Because it reads ahead,
// nothing else may read from the same source.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int
}

// NewReader makes a Reader. The buffer starts at 4 KiB and grows to the longest frame.
func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Reset makes the Reader read from another source. Its buffer is reused, its content dropped.
func (r *Reader) Reset(src io.Reader) {
	r.src, r.start, r.end = src, 0, 0
}

// Next reads one frame. The payload is valid until the next call. Next fails like ReadFrame.
func (r *Reader) Next() (FrameType, []byte, error) {
	if err := r.fill(HeadLen); err != nil {
		return 0, nil, err
	}
	t, n, err := parseHead(r.buf[r.start : r.start+HeadLen])
	if err != nil {
		return 0, nil, err
	}
	if err := r.fill(HeadLen + n); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	payload := r.buf[r.start+HeadLen : r.start+HeadLen+n]
	r.start += HeadLen + n
	return t, payload, nil
}

// NextLong reads one message as AppendLong writes it: any number of FrameData frames and the
// frame of another type that ends the message. It returns that type and the joined payloads.
func (r *Reader) NextLong() (FrameType, []byte, error) {
	t, payload, err := r.Next()
	if err != nil || t != FrameData {
		return t, payload, err
	}
	var whole []byte
	for t == FrameData {
		if len(whole)+len(payload) > MaxLong {
			return 0, nil, holdfast.Errorf(holdfast.KindTooLarge, "wire", "the peer sent a protocol message of more than %d bytes", MaxLong)
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

// fill reads until the buffer has n bytes that Next has not returned yet. It returns io.EOF only if the
// source has ended before the first of them.
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

// Coalesce wraps the connection below the multiplexer (yamux) so that bytes that belong
// together are sent in one write: the head and body of a data frame, and the opening of a
// stream and its first data. It delays bytes only if the multiplexer writes more immediately;
// the acceptance of a stream, on which no peer waits, it delays until the next write.
func Coalesce(conn net.Conn) *Coalesced { return &Coalesced{Conn: conn} }

// Coalesced is a connection that combines small writes, because each write wakes the process at
// the other end. Coalesce makes one.
type Coalesced struct {
	net.Conn
	mu sync.Mutex
	// held are the bytes that are held back until the next write.
	held []byte
	// body is true if the last write was the head of a data frame, so that the next write is its
	// body. of is the stream of the latest frame head.
	body bool
	of   uint32
	// ends are the streams whose closing frames are held back until the next write. last is the stream
	// whose last data is held back until its closing frame; 0 if there is no such stream.
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

// heldMost is how many bytes are held back at most. Once heldACKs bytes are held back, an acceptance of a
// stream is written at once: the multiplexer opens at most 256 streams that the peer has not accepted.
const (
	heldMost = 32 << 10
	heldACKs = 64 * muxHead
)

// Ends announces that the caller closes these streams now. The frames that close them are held
// back and sent with the next write.
func (c *Coalesced) Ends(streams []uint32) {
	c.mu.Lock()
	c.ends = streams
	c.mu.Unlock()
}

// Last announces that the caller now writes the last data of a stream and then closes the
// stream at once, even if the write fails. The data is held back until then, or until the next
// write of any other stream, so that no stream waits for another.
func (c *Coalesced) Last(stream uint32) {
	c.mu.Lock()
	c.last = stream
	c.mu.Unlock()
}

// Write implements net.Conn. The multiplexer's single sender calls it, alternately with the head
// and the body of a frame.
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

// holds reports whether to hold back the bytes p until the next write: because more follows immediately, or
// because nobody waits for them.
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
