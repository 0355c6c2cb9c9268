package client

import (
	"bufio"
	"bytes"
	"io"

	"github.com/holdfast-run/holdfast"
)

// maxFrame bounds a frame: a message of the largest size, escaped, with room.
const maxFrame = 8 * holdfast.MaxText

// frame is one server-sent event.
type frame struct {
	event string
	data  []byte
}

// frames reads a stream of server-sent events.
type frames struct {
	r *bufio.Reader
}

func newFrames(r io.Reader) *frames { return &frames{bufio.NewReaderSize(r, 32<<10)} }

// next is the next frame that has data; comments and ids are passed over (an id
// is the event's own number). A frame that the end cuts off is not returned.
func (f *frames) next() (frame, error) {
	var out frame
	var some bool
	for {
		line, err := f.line()
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if some {
				return out, nil
			}
			out = frame{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			out.event = string(value)
		case "data":
			if some {
				out.data = append(out.data, '\n')
			}
			out.data = append(out.data, value...)
			some = true
			if len(out.data) > maxFrame {
				return frame{}, holdfast.Errorf(holdfast.KindTooLarge, "client", "an event of the stream is over %d bytes", maxFrame)
			}
		}
	}
}

// line is one line without its end; valid until the next call.
func (f *frames) line() ([]byte, error) {
	part, err := f.r.ReadSlice('\n')
	if err == nil {
		return bytes.TrimRight(part, "\r\n"), nil
	}
	if err != bufio.ErrBufferFull {
		return nil, end(err)
	}
	long := append([]byte(nil), part...)
	for {
		part, err = f.r.ReadSlice('\n')
		if long = append(long, part...); len(long) > maxFrame {
			return nil, holdfast.Errorf(holdfast.KindTooLarge, "client", "a line of the stream is over %d bytes", maxFrame)
		}
		if err == nil {
			return bytes.TrimRight(long, "\r\n"), nil
		}
		if err != bufio.ErrBufferFull {
			return nil, end(err)
		}
	}
}

// end makes the end of a stream an error: a stream never ends by itself.
func end(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
