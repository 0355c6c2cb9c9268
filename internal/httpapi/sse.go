package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// flushAt is how much is gathered before it is written: a burst of events costs
// one write, a long replay no memory.
const flushAt = 32 << 10

// source is where a stream comes from: a journal reader. NextFrames blocks until there
// is something, ctx ends, or the source is closed (io.EOF).
type source interface {
	NextFrames(ctx context.Context) ([]*journal.Frame, error)
	Close()
}

// sse writes one event stream. Each write has a deadline (patientWriter): a
// reader that takes longer is cut, and comes back with the last id it saw.
type sse struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	buf   []byte
	begun bool
}

func newSSE(w http.ResponseWriter) *sse { return &sse{w: w, rc: http.NewResponseController(w)} }

// begin sends the header. Errors after it can only be told as an event.
func (s *sse) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// event adds one frame: deltas have no id, so a reconnect never starts at one.
func (s *sse) event(e *journal.Frame) {
	if e.Seq > 0 {
		s.buf = append(s.buf, "id: "...)
		s.buf = strconv.AppendInt(s.buf, e.Seq, 10)
		s.buf = append(s.buf, '\n')
	}
	s.buf = append(s.buf, "event: "...)
	s.buf = append(s.buf, e.Type...)
	s.buf = append(s.buf, "\ndata: "...)
	s.buf = append(s.buf, e.JSON()...)
	s.buf = append(s.buf, "\n\n"...)
}

// frame adds a frame without id whose data is the JSON of v.
func (s *sse) frame(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, "stream", "%s does not encode: %w", name, err)
	}
	s.buf = append(s.buf, "event: "...)
	s.buf = append(s.buf, name...)
	s.buf = append(s.buf, "\ndata: "...)
	s.buf = append(s.buf, data...)
	s.buf = append(s.buf, "\n\n"...)
	return nil
}

func (s *sse) ping() { s.buf = append(s.buf, ": ping\n\n"...) }

// flush sends what was added.
func (s *sse) flush() error {
	if err := s.write(); err != nil {
		return err
	}
	return s.rc.Flush()
}

// write hands on what was added, to be sent at the latest with the end.
func (s *sse) write() error {
	s.begin()
	if len(s.buf) > 0 {
		if _, err := s.w.Write(s.buf); err != nil {
			return err
		}
	}
	if cap(s.buf) > 4*flushAt {
		s.buf = nil
	}
	s.buf = s.buf[:0]
	return nil
}

// choice says what to do with an event of a stream.
type choice struct{ write, last bool }

// ready reports whether a source has something at once: then the header goes
// with it instead of ahead.
func ready(src source) bool {
	r, ok := src.(interface{ Ready() bool })
	return ok && r.Ready()
}

// stream copies a source to the reader until pick says last, the source or ctx
// ends, or the reader stalls.
func (a *API) stream(ctx context.Context, s *sse, src source, pick func(holdfast.Event) choice) {
	for {
		if !s.begun && !ready(src) {
			// The reader sees at once that the server answers.
			if s.ping(); s.flush() != nil {
				return
			}
		}
		wait, cancel := context.WithTimeout(ctx, a.cfg.Ping)
		frames, err := src.NextFrames(wait)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			if stopping := a.live.open(); stopping != nil {
				a.streamError(s, stopping) // the reader comes back with its last id
			}
			return
		case errors.Is(err, context.DeadlineExceeded):
			if s.ping(); s.flush() != nil {
				return
			}
			continue
		default:
			a.streamError(s, err)
			return
		}
		for _, e := range frames {
			c := pick(e.Event)
			if c.write {
				s.event(e)
			}
			if c.last {
				// The end of the response takes it along.
				_ = s.write()
				return
			}
			if len(s.buf) > flushAt && s.flush() != nil {
				return
			}
		}
		if len(s.buf) == 0 {
			continue
		}
		// What is about to be committed goes along: a write wakes the client.
		if runtime.Gosched(); ready(src) {
			continue
		}
		if s.flush() != nil {
			return
		}
	}
}

// streamError tells an error inside a stream that has begun.
func (a *API) streamError(s *sse, err error) {
	p := newProblem(err)
	p.RequestID = s.w.Header().Get(requestHeader)
	if p.Kind == holdfast.KindInternal {
		a.cfg.Log.Error("stream failed", "request_id", p.RequestID, "error", err.Error())
	}
	if s.frame("error", p.Problem) == nil {
		// The reader may be gone as well; it will come back and see.
		_ = s.flush()
	}
}
