package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-run/holdfast"
)

func (c *Client) session(ctx context.Context, r call) (holdfast.Session, error) {
	return askFor[holdfast.Session](ctx, c, r, "session")
}

// CreateSession creates a session. With an idempotency key it may be repeated: each repetition
// returns the session that the first request created.
func (c *Client) CreateSession(ctx context.Context, req holdfast.CreateSession, key string) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: "/v1/sessions", body: req, key: key})
}

// Session returns one session; not_found if no session has that id.
func (c *Client) Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodGet, path: sessionPath(id, "")})
}

// SessionAgents returns a session's records of agent CLIs that store a conversation of their
// own, sorted by generation.
func (c *Client) SessionAgents(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	return askFor[[]holdfast.AgentState](ctx, c, call{method: http.MethodGet, path: sessionPath(id, "/agents")}, "agents")
}

// Sessions returns one page of sessions, newest first.
func (c *Client) Sessions(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error) {
	q := url.Values{}
	setTexts(q, map[string]string{
		"status": f.Status, "agent": f.Agent, "tag": f.Tag, "text": f.Text, "q": f.Query, "name": f.Name, "workspace": string(f.Workspace), "cursor": f.Cursor,
	})
	setTrue(q, "trash", f.Trash)
	setInt(q, "limit", int64(f.Limit))
	return ask[holdfast.SessionPage](ctx, c, call{method: http.MethodGet, path: "/v1/sessions", query: q})
}

// AllSessions yields the sessions of all pages, newest first. It ends after the first error.
func (c *Client) AllSessions(ctx context.Context, f holdfast.SessionFilter) iter.Seq2[holdfast.Session, error] {
	return pages(f.Cursor, func(cursor string) ([]holdfast.Session, string, error) {
		f.Cursor = cursor
		page, err := c.Sessions(ctx, f)
		return page.Sessions, page.Next, err
	})
}

// Search returns one page of hits in titles and conversations, the newest session's first.
func (c *Client) Search(ctx context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error) {
	q := url.Values{"q": {req.Query}}
	setTexts(q, map[string]string{"session": req.Session, "cursor": req.Cursor})
	setInt(q, "limit", int64(req.Limit))
	return ask[holdfast.SearchPage](ctx, c, call{method: http.MethodGet, path: "/v1/search", query: q})
}

// UpdateSession changes those fields of a session that are set in req.
func (c *Client) UpdateSession(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPatch, path: sessionPath(id, ""), body: req})
}

// PauseSession pauses a session; conflict if it is not active, or if a turn is running and req.Interrupt is false.
func (c *Client) PauseSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/pause"), body: req, slow: true})
}

// ResumeSession resumes a paused or failed session; gone if the session has ended.
func (c *Client) ResumeSession(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	return ask[holdfast.Resumed](ctx, c, call{method: http.MethodPost, path: sessionPath(id, "/resume"), body: req, slow: true})
}

// EndSession ends a session for good. Ending an ended session is not an error.
func (c *Client) EndSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/end"), body: req, slow: true})
}

// DeleteSession ends a session and moves it to the trash; with Purge it removes it for good.
func (c *Client) DeleteSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sessionPath(id, ""), body: req, slow: true}, nil)
}

// UntrashSession takes a session out of the trash; conflict for one that is not in it. The session has ended, and can
// be forked.
func (c *Client) UntrashSession(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/untrash")})
}

// Interrupt ends the running turn of a session; conflict if no turn is running.
func (c *Client) Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/interrupt"), slow: true})
}

func setInt(q url.Values, name string, n int64) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, 10))
	}
}

// setTrue sets a parameter of a query if on is true.
func setTrue(q url.Values, name string, on bool) {
	if on {
		q.Set(name, "true")
	}
}

// setTexts sets those parameters of a query that are not empty.
func setTexts(q url.Values, values map[string]string) {
	for name, v := range values {
		if v != "" {
			q.Set(name, v)
		}
	}
}
