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

// Send sends a message and returns once it is durable. With msg.Key it may be
// repeated, and is by the client while the server cannot be reached.
func (c *Client) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	var out holdfast.Sent
	err := c.do(ctx, call{method: http.MethodPost, path: sessionPath(id, "/turns"), body: msg, key: msg.Key}, &out)
	return out, err
}

// Turn is one turn of a session.
func (c *Client) Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error) {
	var out struct {
		Turn holdfast.Turn `json:"turn"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/turns/"+url.PathEscape(string(turn)))}, &out)
	return out.Turn, err
}

// Turns lists turns by number, those after a number first; limit 0 is 100.
func (c *Client) Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error) {
	q := url.Values{}
	setInt(q, "after", after)
	setInt(q, "limit", int64(limit))
	var out struct {
		Turns []holdfast.Turn `json:"turns"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/turns"), query: q}, &out)
	return out.Turns, err
}

// Usage is what a session used up, and its budgets.
func (c *Client) Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error) {
	var out holdfast.SessionUsage
	err := c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/usage")}, &out)
	return out, err
}

// TurnStream is a turn as it happens. Close it, or read Events to their end.
type TurnStream struct {
	// Turn is the turn; Seq the log position before it.
	Turn holdfast.TurnID
	Seq  int64
	// Duplicate reports that the key had been used: the turn is an earlier one.
	Duplicate bool

	c    *Client
	id   holdfast.SessionID
	body io.ReadCloser
}

// Stream sends a message and follows its turn in the same request.
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
		return nil, holdfast.Errorf(holdfast.KindInternal, "client", "the server did not answer with a turn's stream").
			WithHint("check that client and server are of the same release: holdfast version")
	}
	return &TurnStream{
		Turn: holdfast.TurnID(resp.Header.Get("Holdfast-Turn")), Seq: seq,
		Duplicate: resp.Header.Get("Idempotency-Replayed") == "true", c: c, id: id, body: resp.Body,
	}, nil
}

// Events yields the turn's events and the session's own, and ends after the
// turn's last one. It reconnects as Follow does. To be read once.
func (s *TurnStream) Events(ctx context.Context) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		f := follower{c: s.c, id: s.id, last: s.Seq, turn: s.Turn, body: s.body}
		s.body = nil
		f.run(ctx, yield)
	}
}

// Close gives the stream up; the turn goes on.
func (s *TurnStream) Close() {
	if s.body != nil {
		_ = s.body.Close()
	}
}
