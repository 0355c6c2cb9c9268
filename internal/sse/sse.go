// Package sse reads streams of server-sent events.
//
// The clients of such streams import it; it imports the standard library only. Invariant: memory stays
// bounded, whatever a server sends.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLarge reports a line or an event over the limit of its Reader.
var ErrTooLarge = errors.New("an event of the stream is too large")

// Event is a server-sent event.
type Event struct {
	// Name is the field "event"; empty if the event has none.
	Name string
	// Data are the fields "data", joined by line breaks.
	Data []byte
}

// Reader reads the events of a stream. Lines end in LF or CRLF; comments and other fields are skipped.
type Reader struct {
	r    *bufio.Reader
	most int
}

// NewReader returns a reader that accepts lines of at most most bytes, and events with at most most bytes of data.
func NewReader(r io.Reader, most int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 32<<10), most: most}
}

// Next returns the next event that has data. At the end of the stream it returns io.EOF, with the
// part of an event that came before.
func (r *Reader) Next() (Event, error) {
	var e Event
	some := false
	for {
		line, err := r.line()
		if len(line) == 0 && err == nil {
			if some {
				return e, nil
			}
			e = Event{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.Name = string(value)
		case "data":
			if some {
				e.Data = append(e.Data, '\n')
			}
			e.Data, some = append(e.Data, value...), true
			if len(e.Data) > r.most {
				return Event{}, ErrTooLarge
			}
		}
		if err != nil {
			return e, err
		}
	}
}

// line returns one line without its line end; the last one, which has none, with io.EOF. It is valid
// until the next call.
func (r *Reader) line() ([]byte, error) {
	part, err := r.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		long := append([]byte(nil), part...)
		for err == bufio.ErrBufferFull {
			part, err = r.r.ReadSlice('\n')
			if long = append(long, part...); len(long) > r.most {
				return nil, ErrTooLarge
			}
		}
		part = long
	}
	return bytes.TrimRight(part, "\r\n"), err
}
