package client

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
)

// maxQuestions is how many questions of the server Editor answers at the same time.
const maxQuestions = 32

// Editor lends the unsaved texts of a user's editor to the file tools of a session, until ctx or the connection ends.
// text is called for a path below the session's workspace, by several goroutines; it returns false if the editor shows
// what is on the disk, and an error if that is not known. Its context ends with the connection. attached is called when
// the connection is made.
func (c *Client) Editor(ctx context.Context, id holdfast.SessionID, attached func(), text func(ctx context.Context, path string) (text string, unsaved bool, err error)) error {
	at := sessionPath(id, "/editor")
	conn, err := c.dial(ctx, at)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	attached()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { c.heartbeats(ctx, conn) })
	room := make(chan struct{}, maxQuestions)
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return broken(ctx, call{method: http.MethodGet, path: at}, err)
		}
		var q struct {
			ID   int64  `json:"id"`
			Path string `json:"path"`
		}
		if err := json.Unmarshal(data, &q); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "client", "the server sent a question to the editor that is not valid JSON: %s", holdfast.Quote(string(data)))
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return broken(ctx, call{method: http.MethodGet, path: at}, context.Cause(ctx))
		}
		wg.Go(func() {
			defer func() { <-room }()
			a := map[string]any{"id": q.ID}
			if t, unsaved, err := text(ctx, q.Path); err != nil {
				a["why"] = err.Error()
			} else if unsaved {
				a["unsaved"], a["text"] = true, t
			}
			if data, err := json.Marshal(a); err == nil {
				_ = conn.Write(ctx, websocket.MessageText, data) // fails if the server has closed the connection; then nobody needs the answer
			}
		})
	}
}
