package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-run/holdfast"
)

// Send sends a message and returns once the server has stored it durably. If msg.Key is set, the request may be
// repeated, and the client itself repeats it after its connection broke or while the server can run no more boxes.
func (c *Client) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	return ask[holdfast.Sent](ctx, c, call{method: http.MethodPost, path: sessionPath(id, "/turns"), body: msg, key: msg.Key})
}

// Turn returns one turn of a session.
func (c *Client) Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error) {
	return askFor[holdfast.Turn](ctx, c, call{method: http.MethodGet, path: sessionPath(id, "/turns/"+url.PathEscape(string(turn)))}, "turn")
}

// Turns lists the turns of a session with a number above after, sorted by number; limit 0 means
// 100.
func (c *Client) Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error) {
	q := url.Values{}
	setInt(q, "after", after)
	setInt(q, "limit", int64(limit))
	return askFor[[]holdfast.Turn](ctx, c, call{method: http.MethodGet, path: sessionPath(id, "/turns"), query: q}, "turns")
}

// Usage returns what a session used up, and its budgets.
func (c *Client) Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error) {
	return ask[holdfast.SessionUsage](ctx, c, call{method: http.MethodGet, path: sessionPath(id, "/usage")})
}

// TurnStream is the live event stream of a turn. Close it, or read Events to their end.
type TurnStream struct {
	// Turn is the turn's id, Seq the number of the last event before the turn.
	Turn holdfast.TurnID
	Seq  int64
	// Duplicate is true if the idempotency key was used before: Turn is that earlier turn.
	Duplicate bool

	c    *Client
	id   holdfast.SessionID
	body io.ReadCloser
}

// Stream sends a message and returns the event stream of its turn, in one request.
func (c *Client) Stream(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (*TurnStream, error) {
	resp, err := c.open(ctx, call{
		method: http.MethodPost, path: sessionPath(id, "/turns"), body: msg, key: msg.Key,
		head: map[string]string{"Prefer": "stream", "Accept": "text/event-stream"},
	})
	if err != nil {
		return nil, err
	}
	seq, err := strconv.ParseInt(resp.Header.Get("Holdfast-Seq"), 10, 64)
	if err != nil || resp.Header.Get("Holdfast-Turn") == "" {
		_ = resp.Body.Close()
		return nil, holdfast.Errorf(holdfast.KindInternal, "client", "the server did not answer the message with an event stream").
			WithHint("check that client and server are of the same release: holdfast version")
	}
	return &TurnStream{
		Turn: holdfast.TurnID(resp.Header.Get("Holdfast-Turn")), Seq: seq,
		Duplicate: resp.Header.Get("Idempotency-Replayed") == "true", c: c, id: id, body: resp.Body,
	}, nil
}

// Events yields the events of the turn, and those of the session that belong to no turn, until
// the turn ends. It reconnects as Follow does. It can be read only once.
func (s *TurnStream) Events(ctx context.Context) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		f := follower{c: s.c, id: s.id, last: s.Seq, turn: s.Turn, body: s.body}
		s.body = nil
		f.run(ctx, yield)
	}
}

// Close closes the stream; the turn continues.
func (s *TurnStream) Close() {
	if s.body != nil {
		_ = s.body.Close()
	}
}
