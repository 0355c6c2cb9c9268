// Package wire is the protocol between the server and boxd: the hello, the
// frames of a stream, the operations and their JSON shapes.
//
// It defines every byte on the connection between server and boxd. boxd, package sandbox, the drivers
// and other packages of the server import it; it imports the standard library and the vocabulary
// only. Invariant (I-19): a decoder allocates little more than MaxFrame for a frame that it has not
// read yet, and refuses frame types that it does not know.
//
// A connection is one Unix socket (or any net.Conn). Each side first writes one
// Hello frame; then the connection becomes a yamux session, unless the Hello
// has Join (see Hello). Each operation is one yamux stream opened by
// the server: a FrameRequest, then what the operation allows, and in the end one
// FrameAnswer or FrameError from boxd. boxd opens streams only to hand over
// accepted proxy connections (OpAccepted).
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

// Version is the version of the protocol; server and boxd must have the same.
const Version = 6

// MaxFrame is the largest payload of a frame, in bytes. Longer data is split into frames.
const MaxFrame = 256 << 10

// FrameType says what a frame carries.
type FrameType byte

// The frame types. The payload of an output frame begins with the offset of its first byte in
// the whole output of that stream, as 8 bytes big-endian. If the offset is beyond the expected
// one, boxd's spool dropped the output between, since it stores only head and tail.
const (
	FrameHello   FrameType = 'H'
	FrameRequest FrameType = 'Q' // a Request as JSON, the first frame of a stream
	FrameAnswer  FrameType = 'A' // the operation's answer as JSON; ends the stream
	FrameError   FrameType = 'X' // an Error as JSON; ends the stream
	FrameStarted FrameType = 'P' // a Started as JSON: an exec was started (or found running)
	FrameStdout  FrameType = 'O' // 8 bytes of offset, then bytes of stdout; boxd to server
	FrameStderr  FrameType = 'E' // 8 bytes of offset, then bytes of stderr; boxd to server
	FrameStdin   FrameType = 'I' // bytes of stdin, server to boxd
	FrameEOF     FrameType = 'Z' // end of stdin, or of the data of a write or an unpack
	FrameData    FrameType = 'D' // bytes of a file or an archive, either direction; or the beginning of a long message
	FrameResize  FrameType = 'W' // a Size as JSON: the new size of the terminal; server to boxd
	FrameSignal  FrameType = 'S' // a Signal as JSON; server to boxd
	FrameAlive   FrameType = 'L' // Alive as JSON; precedes most errors and each answer of an operation with Op.Changes
)

// WriteFrame writes one frame in a single Write call. It refuses payloads over MaxFrame.
func WriteFrame(w io.Writer, t FrameType, payload []byte) error {
	buf, err := AppendFrame(make([]byte, 0, HeadLen+len(payload)), t, payload)
	if err == nil {
		_, err = w.Write(buf)
	}
	return err
}

// WriteJSON writes one frame holding v as JSON.
func WriteJSON(w io.Writer, t FrameType, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot encode a message for the connection between server and boxd: %w", err)
	}
	return WriteFrame(w, t, b)
}

// parseHead returns the type and the length of the frame that begins with a head.
func parseHead(head []byte) (FrameType, int, error) {
	t := FrameType(head[0])
	if !t.known() {
		return 0, 0, holdfast.Errorf(holdfast.KindInvalid, "wire", "the peer sent a protocol frame of the unknown type %q", head[0])
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, 0, holdfast.Errorf(holdfast.KindTooLarge, "wire", "the peer announced a protocol frame of %d bytes, over the limit of %d", n, MaxFrame)
	}
	return t, int(n), nil
}

// ReadFrame reads one frame. The caller owns the payload. It returns io.EOF only if the source
// ended between two frames, and io.ErrUnexpectedEOF if it ended within one.
func ReadFrame(r io.Reader) (FrameType, []byte, error) {
	var head [HeadLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	t, n, err := parseHead(head[:])
	if err != nil {
		return 0, nil, err
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
		FrameStdin, FrameEOF, FrameData, FrameResize, FrameSignal, FrameAlive:
		return true
	}
	return false
}

// Hello is the first frame on a connection, from the server to boxd.
type Hello struct {
	Version int `json:"version"`
	// Token is the server's fencing token. boxd stores the highest token that it has received
	// on disk, and refuses servers with a lower one (HZ-3).
	Token uint64 `json:"token"`
	// Join, if set, makes the connection one that only gives a session its place in a shared box. The connection
	// then ends.
	Join *Join `json:"join,omitempty"`
}

// Join gives a session its place in a shared box. The driver sends it in a Hello, with the token of
// the connected server, and after it one byte with one or two open files: detached mounts of the session's
// home directory and of its agent's. boxd answers with a Welcome, in which only Version, Boot and Err are set. It
// ignores the mounts if the session has its place already. The connection acts on nothing else and
// replaces no other.
type Join struct {
	Session holdfast.SessionID `json:"session"`
}

// Welcome is boxd's answer to a Hello. If Err is set, boxd refuses the server and closes this connection.
// Otherwise it has closed the older connection before it sends the Welcome.
type Welcome struct {
	Version int    `json:"version"`
	Err     *Error `json:"error,omitempty"`
	// Boot is the id of the box's current boot: a random value, new with each start of boxd.
	Boot string `json:"boot"`
	// Token is the highest fencing token that boxd has accepted, including the one of this Hello.
	Token uint64 `json:"token"`
	// Calls are the calls that boxd holds: running, or finished and not released. More is true if
	// there are others, which the Welcome does not list; OpCalls lists all of them.
	Calls []CallState `json:"calls"`
	More  bool        `json:"more,omitempty"`
	// InForce lists the protections and limits that the box has, Missing those that it lacks, as boxd
	// and the driver have found.
	InForce []string `json:"in_force,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Gated is true if boxd's gate is closed, so that boxd starts no process: a server has closed the
	// gate before a freeze and has not opened it since.
	Gated bool `json:"gated,omitempty"`
}

// Error is the form in which boxd reports a failure.
type Error struct {
	Kind holdfast.Kind `json:"kind"`
	Msg  string        `json:"message"`
	Hint string        `json:"hint,omitempty"`
}

// AsError returns err as an Error. It drops the operation (Op) of a holdfast.Error, because the receiver
// sets an operation of its own.
func AsError(err error) *Error {
	msg := err.Error()
	if he, ok := err.(*holdfast.Error); ok && he.Msg != "" {
		msg = he.Msg
	}
	return &Error{Kind: holdfast.KindOf(err), Msg: msg, Hint: holdfast.HintOf(err)}
}

// Err returns e as a holdfast.Error with the given operation.
func (e *Error) Err(op string) error {
	return &holdfast.Error{Op: op, Kind: e.Kind, Msg: e.Msg, Hint: e.Hint}
}
