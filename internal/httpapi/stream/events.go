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

// flushAt is the number of bytes at which gathered events are sent: a burst of events costs one
// write, and a long replay does not need the memory of all its events.
const flushAt = 32 << 10

// Source is where a stream gets its events: a reader of the journal. NextFrames returns the next
// events; it blocks until there are some, ctx ends, or the source is closed (io.EOF). Ready
// reports whether NextFrames would return at once.
type Source interface {
	NextFrames(ctx context.Context) ([]*journal.Frame, error)
	Ready() bool
	Close()
}

// Choice tells what to do with an event: if Write is true it is sent, if Last is true the stream ends after it.
type Choice struct{ Write, Last bool }

// Events writes the answer to one request as server-sent events. The guard's response writer gives
// each write a deadline: a client that takes longer is cut off, and may reconnect with the last
// id that it received.
type Events struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	log   *slog.Logger
	buf   []byte
	begun bool
}

// Events returns a writer of server-sent events to w. It sends the header with the first Flush.
func (s *Streams) Events(w http.ResponseWriter) *Events {
	return &Events{w: w, conn: http.NewResponseController(w), log: s.cfg.Log}
}

// Begun reports whether the header was sent. After that an error can only be sent as an event, by
// Fail.
func (e *Events) Begun() bool { return e.begun }

// Add adds an event without id, whose data is v as JSON, to those that Flush sends.
func (e *Events) Add(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, "stream", "the event %s of the stream cannot be encoded: %w", name, err)
	}
	e.add(name, data)
	return nil
}

// Flush sends the events that were added.
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
		e.log.Error("an event stream failed", "request_id", p.RequestID, "error", err.Error())
	}
	if e.Add("error", p.Problem) == nil {
		_ = e.Flush() // ignore the error: the client may have disconnected
	}
}

// frame adds an event of a session. An event without a sequence number (a delta) gets no id, so that
// no client resumes at it.
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

// write passes the added events to the HTTP server, which sends them at the latest when the answer
// ends.
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

// Send answers a request with the events of src that pick chooses, and sends a ping whenever it has sent nothing for
// Config.Ping, even if src has events that pick leaves out. It returns after an event for which pick returned Last,
// when src or ctx ends, or when the client stalls.
func (s *Streams) Send(ctx context.Context, w http.ResponseWriter, src Source, pick func(holdfast.Event) Choice) {
	out := s.Events(w)
	for s.sendSome(ctx, out, src, pick) {
	}
}

// sendSome waits for events of src that pick chooses and sends them; if none came within Config.Ping, it sends a ping. It
// returns false if the stream has ended.
func (s *Streams) sendSome(ctx context.Context, out *Events, src Source, pick func(holdfast.Event) Choice) bool {
	silent, end := context.WithTimeout(ctx, s.cfg.Ping)
	defer end()
	for {
		// Send the header with a ping now, so that the client knows that the server answers. If
		// events are ready, the header is sent with them instead.
		if !out.begun && !src.Ready() {
			return out.Ping() == nil
		}
		wait := silent
		if src.Ready() && silent.Err() == nil {
			wait = ctx // NextFrames returns at once: a ping must not end its read of the store
		}
		frames, err := src.NextFrames(wait)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			if stopped := s.Stopped(); stopped != nil {
				out.Fail(stopped) // the error event tells the client to reconnect later
			}
			return false
		case errors.Is(err, context.DeadlineExceeded):
			return out.Ping() == nil
		default:
			out.Fail(err)
			return false
		}
		if out.pass(frames, pick) {
			return false
		}
		if len(out.buf) == 0 {
			continue
		}
		// Wait for an event that is about to be committed and send it in the same write, since
		// each write wakes the client.
		if runtime.Gosched(); src.Ready() {
			continue
		}
		return out.Flush() == nil
	}
}

// pass adds the frames that pick chooses to the stream, and reports whether the stream has ended.
func (e *Events) pass(frames []*journal.Frame, pick func(holdfast.Event) Choice) (ended bool) {
	for _, f := range frames {
		c := pick(f.Event)
		if c.Write {
			e.frame(f)
		}
		if c.Last {
			_ = e.write() // no flush needed: net/http sends what was written when the answer ends
			return true
		}
		if len(e.buf) > flushAt && e.Flush() != nil {
			return true
		}
	}
	return false
}
