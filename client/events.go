package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Events returns one page of a session's log.
func (c *Client) Events(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) ([]holdfast.Event, error) {
	var out struct {
		Events []holdfast.Event `json:"events"`
	}
	q := eventQuery(f.After, f.Types)
	setInt(q, "limit", int64(f.Limit))
	err := c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/events"), query: q}, &out)
	return out.Events, err
}

// AllEvents yields the events of the log after a sequence number, up to the log's current end.
// It ends after the first error.
func (c *Client) AllEvents(ctx context.Context, id holdfast.SessionID, after int64) iter.Seq2[holdfast.Event, error] {
	const limit = 1000
	return pages(after, func(after int64) ([]holdfast.Event, int64, error) {
		page, err := c.Events(ctx, id, holdfast.EventFilter{After: after, Limit: limit})
		if len(page) < limit {
			return page, 0, err
		}
		return page, page[len(page)-1].Seq, err
	})
}

// Transcript returns one page of the conversation after a sequence number. next is the value of
// after for the following page, 0 on the last page. limit 0 means 1000.
func (c *Client) Transcript(ctx context.Context, id holdfast.SessionID, after int64, limit int) (entries []holdfast.TranscriptEntry, next int64, err error) {
	var out struct {
		Entries []holdfast.TranscriptEntry `json:"entries"`
		Next    int64                      `json:"next"`
	}
	q := url.Values{}
	setInt(q, "after", after)
	setInt(q, "limit", int64(limit))
	err = c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/transcript"), query: q}, &out)
	return out.Entries, out.Next, err
}

// Follow yields a session's events after a sequence number as they happen, with deltas
// in between, until ctx ends or the consumer stops. types, if given, selects events. After a
// broken connection it reconnects and continues after the last event, any number of times.
// Follow yields an error, and ends, if ctx ends, the server refuses the request, or the server
// gives no sign of life for Config.ReconnectFor.
func (c *Client) Follow(ctx context.Context, id holdfast.SessionID, after int64, types ...holdfast.EventType) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		f := follower{c: c, id: id, last: after, types: types}
		f.run(ctx, yield)
	}
}

// endOfStream is how long the client waits for the end of a stream after its last event.
const endOfStream = 100 * time.Millisecond

// follower is the state of one iteration over an event stream.
type follower struct {
	c     *Client
	id    holdfast.SessionID
	last  int64
	types []holdfast.EventType
	turn  holdfast.TurnID // if set, the iteration ends after this turn
	body  io.ReadCloser   // if set, a stream that is already open
	done  bool
}

// run connects and yields events until the iteration is over, and reconnects when needed.
func (f *follower) run(ctx context.Context, yield func(holdfast.Event, error) bool) {
	pace, outage := newBackoff(f.c.cfg.ReconnectFor), f.c.newWait()
	defer outage.end(false)
	begun := f.body != nil
	for {
		outage.begin(nil)
		err := f.connect(ctx)
		if err == nil {
			begun = true
			err = f.copy(ctx, func() {
				pace.connected()
				outage.end(true)
			}, pace.progressed, yield)
		}
		if f.done {
			return
		}
		if ctx.Err() != nil {
			yield(holdfast.Event{}, holdfast.Errorf(holdfast.KindUnavailable, "client", "the event stream was canceled: %w", context.Cause(ctx)))
			return
		}
		again := begun && temporary(err)
		if begun && stranger(err) {
			// Another server answers at this URL now. The server of this stream may have restarted at another
			// address, which Config.Address may soon return.
			again, err = f.c.cfg.Address != nil, f.c.strange(err)
		}
		if again {
			outage.begin(err)
			again = pace.next(ctx)
		}
		if !again {
			yield(holdfast.Event{}, err)
			return
		}
	}
}

func (f *follower) connect(ctx context.Context) error {
	if f.body != nil {
		return nil
	}
	resp, err := f.c.once(ctx, call{
		method: http.MethodGet, path: sessionPath(f.id, "/events"), query: eventQuery(f.last, f.types),
		head: map[string]string{"Accept": "text/event-stream"},
	}, nil, f.c.newWait())
	if err != nil {
		return err
	}
	if typ, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || typ != "text/event-stream" {
		_ = resp.Body.Close() // do not read the body to its end, because it may be endless
		e := holdfast.Errorf(holdfast.KindInternal, "client", "the server answered with content of type %s, not with an event stream", holdfast.Quote(typ)).
			WithHint("check that HOLDFAST_URL names a holdfast server")
		e.Err = errForeign
		return e
	}
	f.body = resp.Body
	return nil
}

// copy yields the events of one connection. It calls living at each sign of life and fresh at
// each new event. It returns why the connection ended. It sets f.done if the iteration is over.
func (f *follower) copy(ctx context.Context, living, fresh func(), yield func(holdfast.Event, error) bool) error {
	body := f.body
	f.body = nil
	defer body.Close()
	// ctx may not be the context of the request: close the body to end a blocked read.
	unhook := context.AfterFunc(ctx, func() { _ = body.Close() })
	defer unhook()
	frames := newFrames(&alive{body, living})
	for {
		fr, err := frames.next()
		if err != nil {
			if holdfast.IsKind(err, holdfast.KindTooLarge) {
				return err
			}
			return broken(ctx, call{method: http.MethodGet, path: sessionPath(f.id, "/events")}, err)
		}
		if fr.Name == "error" {
			var p holdfast.Problem
			if err := json.Unmarshal(fr.Data, &p); err != nil || p.Kind == "" {
				return holdfast.Errorf(holdfast.KindInternal, "client", "the event stream ended with an error that is not a problem document: %s", holdfast.Quote(string(fr.Data)))
			}
			return fromProblem(p)
		}
		var e holdfast.Event
		if err := json.Unmarshal(fr.Data, &e); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "client", "cannot decode an event of the event stream: %w", err)
		}
		isNew, err := f.accept(e)
		if err != nil {
			return err
		}
		if !isNew {
			continue
		}
		fresh()
		last := f.turn != "" && e.Turn == f.turn && e.EndsTurn()
		if !yield(e, nil) || last {
			if last {
				// The server ends the stream here: read it to the end, so that the connection
				// can be reused.
				if d, ok := body.(*download); ok {
					d.shorten(endOfStream)
				}
				_, _ = io.Copy(io.Discard, body)
			}
			f.done = true
			return nil
		}
	}
}

// accept reports whether e is new and to be yielded. In a stream of all events, it fails if the events
// between the last one and e are missing.
func (f *follower) accept(e holdfast.Event) (bool, error) {
	if f.turn != "" && e.Turn != "" && e.Turn != f.turn {
		f.last = max(f.last, e.Seq)
		return false, nil
	}
	if e.Seq == 0 {
		return true, nil
	}
	if e.Seq <= f.last {
		return false, nil
	}
	if f.turn == "" && len(f.types) == 0 && e.Seq != f.last+1 {
		return false, holdfast.Errorf(holdfast.KindInternal, "client", "the event stream skipped events: event %d was followed by event %d", f.last, e.Seq).
			WithHint("read the log with: holdfast session events %s", f.id)
	}
	f.last = e.Seq
	return true, nil
}

func eventQuery(after int64, types []holdfast.EventType) url.Values {
	q := url.Values{}
	if after != 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	if len(types) > 0 {
		names := make([]string, len(types))
		for i, t := range types {
			names[i] = string(t)
		}
		q.Set("type", strings.Join(names, ","))
	}
	return q
}

// alive is a reader that calls tell after each read that returned bytes.
type alive struct {
	r    io.Reader
	tell func()
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.tell()
	}
	if errors.Is(err, http.ErrBodyReadAfterClose) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
