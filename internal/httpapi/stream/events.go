package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// flushAt is how many bytes are gathered before they are written: a burst of events costs
// one write, and a long replay does not need the memory of all its events.
const flushAt = 32 << 10

// Source gives a stream its events: a reader of the journal. NextFrames blocks until there
// are some, until ctx ends, or until the source is closed (io.EOF). Ready reports whether
// it would return at once.
type Source interface {
	NextFrames(ctx context.Context) ([]*journal.Frame, error)
	Ready() bool
	Close()
}

// Choice says what to do with an event of a source: write it, and end the stream with it.
type Choice struct{ Write, Last bool }

// Events writes the answer to one request as server-sent events. The guard's writer gives
// each write a deadline: a reader that takes longer is cut off, and comes back with the
// last id it saw.
type Events struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	log   *slog.Logger
	buf   []byte
	begun bool
}

// Events returns the writer of an event stream. Its header goes out with the first Flush.
func (s *Streams) Events(w http.ResponseWriter) *Events {
	return &Events{w: w, conn: http.NewResponseController(w), log: s.cfg.Log}
}

// Begun reports whether the header was sent. After that an error can only be sent as an
// event, with Fail.
func (e *Events) Begun() bool { return e.begun }

// Add adds an event without id whose data is the JSON of v.
func (e *Events) Add(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, "stream", "%s does not encode: %w", name, err)
	}
	e.add(name, data)
	return nil
}

// Flush sends what was added.
func (e *Events) Flush() error {
	if err := e.write(); err != nil {
		return err
	}
	return e.conn.Flush()
}

// Ping sends a comment, which shows both sides that the connection is alive.
func (e *Events) Ping() error {
	e.buf = append(e.buf, ": ping\n\n"...)
	return e.Flush()
}

// Fail sends an error as the last event.
func (e *Events) Fail(err error) {
	p := problem.Of(err)
	p.RequestID = e.w.Header().Get(problem.RequestID)
	if p.Kind == holdfast.KindInternal {
		e.log.Error("stream failed", "request_id", p.RequestID, "error", err.Error())
	}
	if e.Add("error", p.Problem) == nil {
		_ = e.Flush() // a reader that is gone sees the error when it comes back
	}
}

// frame adds an event of a session. Deltas have no id, so that no reader resumes at one.
func (e *Events) frame(f *journal.Frame) {
	if f.Seq > 0 {
		e.buf = append(e.buf, "id: "...)
		e.buf = strconv.AppendInt(e.buf, f.Seq, 10)
		e.buf = append(e.buf, '\n')
	}
	e.add(string(f.Type), f.JSON())
}

func (e *Events) add(name string, data []byte) {
	e.buf = append(e.buf, "event: "...)
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, "\ndata: "...)
	e.buf = append(e.buf, data...)
	e.buf = append(e.buf, "\n\n"...)
}

// write hands what was added to the HTTP server, which sends it with the end of the answer
// at the latest.
func (e *Events) write() error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	if len(e.buf) > 0 {
		if _, err := e.w.Write(e.buf); err != nil {
			return err
		}
	}
	if cap(e.buf) > 4*flushAt {
		e.buf = nil
	}
	e.buf = e.buf[:0]
	return nil
}

// Send answers a request with the events of a source. It returns when pick has said Last,
// when the source or ctx ends, or when the reader stalls.
func (s *Streams) Send(ctx context.Context, w http.ResponseWriter, src Source, pick func(holdfast.Event) Choice) {
	out := s.Events(w)
	for {
		// The reader sees at once that the server answers. Where there are events already,
		// the header goes with them.
		if !out.begun && !src.Ready() && out.Ping() != nil {
			return
		}
		wait, cancel := context.WithTimeout(ctx, s.cfg.Ping)
		frames, err := src.NextFrames(wait)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			if stopped := s.Stopped(); stopped != nil {
				out.Fail(stopped) // the reader comes back with its last id
			}
			return
		case errors.Is(err, context.DeadlineExceeded):
			if out.Ping() != nil {
				return
			}
			continue
		default:
			out.Fail(err)
			return
		}
		if out.pass(frames, pick) {
			return
		}
		if len(out.buf) == 0 {
			continue
		}
		// An event that is about to be committed goes in the same write, since each write
		// wakes the client.
		if runtime.Gosched(); src.Ready() {
			continue
		}
		if out.Flush() != nil {
			return
		}
	}
}

// pass adds the frames that pick chooses, and reports whether the stream has ended.
func (e *Events) pass(frames []*journal.Frame, pick func(holdfast.Event) Choice) (ended bool) {
	for _, f := range frames {
		c := pick(f.Event)
		if c.Write {
			e.frame(f)
		}
		if c.Last {
			_ = e.write() // the end of the answer sends it
			return true
		}
		if len(e.buf) > flushAt && e.Flush() != nil {
			return true
		}
	}
	return false
}
