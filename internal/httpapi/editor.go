package httpapi

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/socket"
)

type editorInput struct {
	SessionInput
	plain
}

func (a *API) editorRoutes() {
	op := route(http.MethodGet, "/v1/sessions/{id}/editor", "editor", "box", "Lend the unsaved texts of an editor to the session's file tools (WebSocket)")
	op.DefaultStatus = http.StatusSwitchingProtocols
	op.Description = `For a program that has the session's workspace open in an editor. While the connection lasts, the session's tools Read, Edit and Write ask it for the text of each file that they use. Messages are JSON text: {"id":1,"path":"src/main.go"} from the server, with a path below the workspace; {"id":1,"unsaved":true,"text":"…"} to it within 3 seconds, with at most 1 MiB of text, or {"id":1,"unsaved":false} if the editor shows what is on the disk, or {"id":1,"why":"…"} if that is not known. A session may have 8 such connections; the newest is asked.`
	op.Responses = map[string]*huma.Response{"101": {Description: "The connection is a WebSocket now."}}
	handleOne(a, op, a.editor)
}

func (a *API) editor(ctx context.Context, id holdfast.SessionID, in *editorInput) (*raw, error) {
	if err := socket.Check(in.r, "editor", "holdfast acp connects an editor"); err != nil {
		return nil, err
	}
	if err := a.alive(ctx, id); err != nil {
		return nil, err
	}
	return answer(func(w http.ResponseWriter, r *http.Request) {
		one, err := a.cfg.Self.Editors.Attach(id)
		if err != nil {
			a.problems.Answer(w, r, err)
			return
		}
		defer one.Leave()
		if c, cancel := a.accept(w, r, socket.MaxLent); c != nil {
			defer func() { _ = c.CloseNow() }() // does nothing if the connection was closed properly
			c.Lend(one, a.cfg.Waits.Ping, cancel)
		}
	}), nil
}

// alive returns an error for a session that has ended: after the upgrade no error can be sent as an HTTP status.
func (a *API) alive(ctx context.Context, id holdfast.SessionID) error {
	s, err := a.cfg.Views.Session(ctx, id)
	if err == nil && s.Status == holdfast.StatusEnded {
		err = holdfast.Errorf(holdfast.KindGone, "session", "session %s has ended", id).WithHint("holdfast session create makes a new one")
	}
	return err
}

// accept upgrades a request's connection to a WebSocket that accepts messages of at most most bytes. The connection's
// context ends when the server's streams end (Streams.Join). After a failed upgrade, which has sent the error, accept
// returns nil.
func (a *API) accept(w http.ResponseWriter, r *http.Request, most int64) (*socket.Conn, context.CancelFunc) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: a.cfg.Access.Origins})
	if err != nil {
		return nil, nil
	}
	conn.SetReadLimit(most)
	ctx, cancel := a.streams.Join(r.Context())
	return &socket.Conn{Conn: conn, Ctx: ctx, Limit: a.cfg.Waits.Write}, cancel
}
