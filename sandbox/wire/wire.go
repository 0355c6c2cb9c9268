// Package wire is the protocol between the server and boxd: the hello, the
// frames of a stream, the operations and their JSON shapes.
//
// It owns every byte that crosses the pipe. boxd and the sandbox package import
// it; it imports the standard library and the vocabulary only. Invariant (I-19): a
// decoder never allocates more than MaxFrame for a frame it has not yet read,
// and refuses what it does not know.
//
// A connection is one Unix socket (or any net.Conn). Each side first writes one
// Hello frame; then the connection becomes a yamux session. Each operation is
// one yamux stream opened by the server: a FrameRequest, then what the operation
// allows, and in the end one FrameAnswer or FrameError from boxd. boxd opens
// streams only to hand over accepted proxy connections (OpAccepted).
//
// A request or answer longer than MaxFrame is sent as FrameData pieces before
// the frame that ends it (AppendLong); MaxLong bounds it.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/holdfast-run/holdfast"
)

// Version is the protocol's version; both sides must speak the same.
const Version = 5

// MaxFrame is the largest payload of a frame, in bytes. Longer data is split.
const MaxFrame = 256 << 10

// FrameType says what a frame carries.
type FrameType byte

// The frame types. Data frames of output begin with the 8-byte big-endian
// logical offset of their first byte in that stream; a jump over the expected
// offset is output that the spool dropped between head and tail.
const (
	FrameHello   FrameType = 'H'
	FrameRequest FrameType = 'Q' // JSON Request
	FrameAnswer  FrameType = 'A' // JSON of the operation's answer; ends the stream
	FrameError   FrameType = 'X' // JSON Error; ends the stream
	FrameStarted FrameType = 'P' // JSON Started: an exec was spawned (or found running)
	FrameStdout  FrameType = 'O' // offset + bytes, boxd to server
	FrameStderr  FrameType = 'E' // offset + bytes, boxd to server
	FrameStdin   FrameType = 'I' // bytes, server to boxd
	FrameEOF     FrameType = 'Z' // end of stdin, or of the data of a write
	FrameData    FrameType = 'D' // bytes of a file, either direction
	FrameResize  FrameType = 'W' // JSON Size
	FrameSignal  FrameType = 'S' // JSON Signal
)

// WriteFrame writes one frame in a single Write call. It refuses payloads over MaxFrame.
func WriteFrame(w io.Writer, t FrameType, payload []byte) error {
	if len(payload) > MaxFrame {
		return holdfast.Errorf(holdfast.KindTooLarge, "wire", "frame of %d bytes is over %d", len(payload), MaxFrame)
	}
	buf := make([]byte, 5+len(payload))
	buf[0] = byte(t)
	binary.BigEndian.PutUint32(buf[1:5], uint32(len(payload)))
	copy(buf[5:], payload)
	_, err := w.Write(buf)
	return err
}

// WriteJSON writes one frame holding v as JSON.
func WriteJSON(w io.Writer, t FrameType, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	return WriteFrame(w, t, b)
}

// ReadFrame reads one frame. The payload is owned by the caller. io.EOF is
// returned only at a frame border; a cut frame is io.ErrUnexpectedEOF.
func ReadFrame(r io.Reader) (FrameType, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	t := FrameType(head[0])
	if !t.known() {
		return 0, nil, holdfast.Errorf(holdfast.KindInvalid, "wire", "unknown frame type %q", head[0])
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, holdfast.Errorf(holdfast.KindTooLarge, "wire", "frame of %d bytes is over %d", n, MaxFrame)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return t, payload, nil
}

func (t FrameType) known() bool {
	switch t {
	case FrameHello, FrameRequest, FrameAnswer, FrameError, FrameStarted, FrameStdout, FrameStderr,
		FrameStdin, FrameEOF, FrameData, FrameResize, FrameSignal:
		return true
	}
	return false
}

// Hello is the server's first frame.
type Hello struct {
	Version int `json:"version"`
	// Token fences: boxd remembers the highest it saw, on disk, and refuses lower ones (HZ-3).
	Token uint64 `json:"token"`
}

// Welcome is boxd's answer to a Hello. Older connections are closed before it
// is sent. When Err is set the connection is closed after it.
type Welcome struct {
	Version int    `json:"version"`
	Err     *Error `json:"error,omitempty"`
	// Boot is random and new with each start of boxd: the life of the box.
	Boot string `json:"boot"`
	// Token is the highest token seen, this hello's included.
	Token uint64 `json:"token"`
	// Calls are the mutating calls boxd still holds; More says that the frame had
	// no room for all, and OpCalls lists them.
	Calls []CallState `json:"calls"`
	More  bool        `json:"more,omitempty"`
	// InForce and Missing list protections and limits as boxd measured them.
	InForce []string `json:"in_force,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Gated reports that forks are held back (a freeze was begun and not ended).
	Gated bool `json:"gated,omitempty"`
}

// Error is a failure as boxd reports it.
type Error struct {
	Kind holdfast.Kind `json:"kind"`
	Msg  string        `json:"message"`
	Hint string        `json:"hint,omitempty"`
}

// AsError turns any error into its wire form. The operation is left out: the
// receiver names its own.
func AsError(err error) *Error {
	msg := err.Error()
	if he, ok := err.(*holdfast.Error); ok && he.Msg != "" {
		msg = he.Msg
	}
	return &Error{Kind: holdfast.KindOf(err), Msg: msg, Hint: holdfast.HintOf(err)}
}

// Err turns the wire form back into an error of package holdfast.
func (e *Error) Err(op string) error {
	return &holdfast.Error{Op: op, Kind: e.Kind, Msg: e.Msg, Hint: e.Hint}
}
