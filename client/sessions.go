package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-run/holdfast"
)

type sessionAnswer struct {
	Session holdfast.Session `json:"session"`
}

func (c *Client) session(ctx context.Context, r call) (holdfast.Session, error) {
	var out sessionAnswer
	err := c.do(ctx, r, &out)
	return out.Session, err
}

// CreateSession creates a session. With a key it may be repeated: the answer is
// the first one's session.
func (c *Client) CreateSession(ctx context.Context, req holdfast.CreateSession, key string) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: "/v1/sessions", body: req, key: key})
}

// Session is one session; not_found for an unknown one.
func (c *Client) Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodGet, path: sessionPath(id, "")})
}

// SessionAgents are a session's references to agents that keep a conversation of
// their own, by generation.
func (c *Client) SessionAgents(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	var out struct {
		Agents []holdfast.AgentState `json:"agents"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sessionPath(id, "/agents")}, &out)
	return out.Agents, err
}

// Sessions is one page of sessions, newest first.
func (c *Client) Sessions(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error) {
	q := url.Values{}
	for k, v := range map[string]string{
		"status": f.Status, "agent": f.Agent, "tag": f.Tag, "text": f.Text, "q": f.Query, "name": f.Name, "cursor": f.Cursor,
	} {
		if v != "" {
			q.Set(k, v)
		}
	}
	setInt(q, "limit", int64(f.Limit))
	var out holdfast.SessionPage
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/sessions", query: q}, &out)
	return out, err
}

// AllSessions goes through all pages. It ends after the first error.
func (c *Client) AllSessions(ctx context.Context, f holdfast.SessionFilter) iter.Seq2[holdfast.Session, error] {
	return func(yield func(holdfast.Session, error) bool) {
		for {
			page, err := c.Sessions(ctx, f)
			if err != nil {
				yield(holdfast.Session{}, err)
				return
			}
			for _, s := range page.Sessions {
				if !yield(s, nil) {
					return
				}
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return
			}
		}
	}
}

// Search is one page of what was said in sessions, newest sessions first.
func (c *Client) Search(ctx context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error) {
	q := url.Values{"q": {req.Query}}
	for k, v := range map[string]string{"session": req.Session, "cursor": req.Cursor} {
		if v != "" {
			q.Set(k, v)
		}
	}
	setInt(q, "limit", int64(req.Limit))
	var out holdfast.SearchPage
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/search", query: q}, &out)
	return out, err
}

// UpdateSession changes what req names.
func (c *Client) UpdateSession(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPatch, path: sessionPath(id, ""), body: req})
}

// PauseSession pauses; conflict when it is not active or a turn runs.
func (c *Client) PauseSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/pause"), body: req, slow: true})
}

// ResumeSession resumes; gone when it is ended.
func (c *Client) ResumeSession(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	var out holdfast.Resumed
	err := c.do(ctx, call{method: http.MethodPost, path: sessionPath(id, "/resume"), body: req, slow: true}, &out)
	return out, err
}

// EndSession ends a session for good; ending it again is harmless.
func (c *Client) EndSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/end"), body: req, slow: true})
}

// DeleteSession ends a session and removes it.
func (c *Client) DeleteSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sessionPath(id, ""), body: req, slow: true}, nil)
}

// Interrupt ends the running turn; conflict when none runs.
func (c *Client) Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/interrupt"), slow: true})
}

func setInt(q url.Values, name string, n int64) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, 10))
	}
}
