package client

import (
	"bufio"
	"bytes"
	"io"

	"github.com/holdfast-run/holdfast"
)

// maxFrame is the greatest size of a frame in bytes: enough for the largest message, escaped.
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

// next returns the next frame that has data. It skips comments and ids (an id repeats the
// event's number). An incomplete frame at the end of the stream is not returned.
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

// line returns one line without its line end. It is valid until the next call.
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

// end returns io.ErrUnexpectedEOF for io.EOF, because an event stream never ends regularly.
func end(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
