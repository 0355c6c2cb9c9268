package client

import (
	"errors"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/sse"
)

// maxFrame is the greatest size of an event in bytes: enough for the largest message, escaped.
const maxFrame = 8 * holdfast.MaxText

// frames reads the server-sent events of an answer.
type frames struct{ r *sse.Reader }

func newFrames(r io.Reader) frames { return frames{sse.NewReader(r, maxFrame)} }

// next returns the next event that has data. At the end of the stream it returns io.ErrUnexpectedEOF, because
// callers stop at the last event of an answer and do not read on.
func (f frames) next() (sse.Event, error) {
	e, err := f.r.Next()
	switch {
	case err == nil:
		return e, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, sse.ErrTooLarge):
		err = holdfast.Errorf(holdfast.KindTooLarge, "client", "an event of the event stream is larger than %d bytes", maxFrame)
	}
	return sse.Event{}, err
}
