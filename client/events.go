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

// Events is one page of a session's log.
func (c *Client) Events(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) ([]holdfast.Event, error) {
	var out struct {
		Events []holdfast.Event `json:"events"`
	}
	q := eventQuery(f.After, f.Types)
	setInt(q, "limit", int64(f.Limit))
	err := c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/events"), query: q}, &out)
	return out.Events, err
}

// AllEvents goes through the log after a sequence number to its present end. It
// ends after the first error.
func (c *Client) AllEvents(ctx context.Context, id holdfast.SessionID, after int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		const limit = 1000
		for {
			page, err := c.Events(ctx, id, holdfast.EventFilter{After: after, Limit: limit})
			if err != nil {
				yield(holdfast.Event{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(page) < limit {
				return
			}
		}
	}
}

// Transcript is one page of the conversation after a sequence number; next is
// where the following page starts, 0 on the last one. limit 0 is 1000.
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
// in between, until ctx ends or the consumer stops. types, if given, selects events. A
// broken connection is made again from the last event seen, however often. Follow
// yields an error and ends only when the server refuses or gives no sign of life for
// Config.ReconnectFor.
func (c *Client) Follow(ctx context.Context, id holdfast.SessionID, after int64, types ...holdfast.EventType) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		f := follower{c: c, id: id, last: after, types: types}
		f.run(ctx, yield)
	}
}

// endOfStream is how long the end of a stream may take after its last event.
const endOfStream = 100 * time.Millisecond

// follower is one iteration over a stream.
type follower struct {
	c     *Client
	id    holdfast.SessionID
	last  int64
	types []holdfast.EventType
	turn  holdfast.TurnID // ends after this turn, when set
	body  io.ReadCloser   // the stream that is open already, when set
	done  bool
}

// run connects and copies until it is over.
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
			yield(holdfast.Event{}, holdfast.Errorf(holdfast.KindUnavailable, "client", "the stream was given up: %w", context.Cause(ctx)))
			return
		}
		again := begun && temporary(err)
		if begun && stranger(err) {
			// The former server may be about to record where it listens now.
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
		_ = resp.Body.Close() // reading it to the end could take for ever
		e := holdfast.Errorf(holdfast.KindInternal, "client", "the server answered with %s, not with a stream", holdfast.Quote(typ)).
			WithHint("check that HOLDFAST_URL names a holdfast server")
		e.Err = errForeign
		return e
	}
	f.body = resp.Body
	return nil
}

// copy yields the events of one connection. It calls living at each sign of life and
// fresh at each new event. It returns why the connection ended; done: there is nothing
// more to follow.
func (f *follower) copy(ctx context.Context, living, fresh func(), yield func(holdfast.Event, error) bool) error {
	body := f.body
	f.body = nil
	defer body.Close()
	// The body's own context may be an earlier request's: closing it ends a read.
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
		if fr.event == "error" {
			var p holdfast.Problem
			if err := json.Unmarshal(fr.data, &p); err != nil || p.Kind == "" {
				return holdfast.Errorf(holdfast.KindInternal, "client", "the stream failed with %s", holdfast.Quote(string(fr.data)))
			}
			return fromProblem(p)
		}
		var e holdfast.Event
		if err := json.Unmarshal(fr.data, &e); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "client", "an event of the stream does not decode: %w", err)
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
				// The server ends the stream here: read to its end, the connection
				// serves the next request.
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

// accept keeps the promise of no gap and no duplicate.
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
		return false, holdfast.Errorf(holdfast.KindInternal, "client", "the stream skipped from event %d to %d", f.last, e.Seq).
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

// alive tells of each read that brought something.
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
