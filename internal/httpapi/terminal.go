package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// maxKeys is the largest message from a terminal's client, in bytes: enough for a large paste.
const maxKeys = 1 << 20

type terminalInput struct {
	SessionInput
	plain
	Rows uint16 `query:"rows" minimum:"1" maximum:"1000" doc:"The height in characters; 24 when absent."`
	Cols uint16 `query:"cols" minimum:"1" maximum:"1000" doc:"The width in characters; 80 when absent."`
	Exec bool   `query:"exec" doc:"A command gets the terminal instead of a login shell: the first message from the client names it."`
}

// termEnd is the last message to a terminal's client: how the command ended, or the error
// that kept it from running.
type termEnd struct {
	Exit    *int               `json:"exit,omitempty"`
	Class   holdfast.ExitClass `json:"class,omitempty"`
	Signal  string             `json:"signal,omitempty"`
	Message string             `json:"message,omitempty"`
	Error   *holdfast.Problem  `json:"error,omitempty"`
}

func (a *API) terminal(ctx context.Context, id holdfast.SessionID, in *terminalInput) (*raw, error) {
	if err := checkUpgrade(in.r); err != nil {
		return nil, err
	}
	// After the upgrade an error can no longer be sent as an HTTP status, so check the session now.
	s, err := a.cfg.Views.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.Status == holdfast.StatusEnded {
		return nil, holdfast.Errorf(holdfast.KindGone, "terminal", "session %s has ended", id).
			WithHint("holdfast session create makes a new one")
	}
	req := holdfast.TerminalRequest{Size: holdfast.TermSize{Rows: cmp.Or(in.Rows, 24), Cols: cmp.Or(in.Cols, 80)}}
	if in.Exec {
		req.Exec = &holdfast.ExecRequest{} // filled from the client's first message
	}
	return answer(func(w http.ResponseWriter, r *http.Request) { a.runTerminal(w, r, id, req) }), nil
}

// checkUpgrade refuses a request that is not a WebSocket handshake.
func checkUpgrade(r *http.Request) error {
	if r.Method == http.MethodGet && lists(r.Header.Get("Connection"), "upgrade") &&
		strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		r.Header.Get("Sec-WebSocket-Version") == "13" && len(r.Header.Get("Sec-WebSocket-Key")) == 24 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "terminal", "the request is not a WebSocket handshake").
		WithHint("holdfast terminal ID opens a terminal")
}

func (a *API) runTerminal(w http.ResponseWriter, r *http.Request, id holdfast.SessionID, req holdfast.TerminalRequest) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: a.cfg.Access.Origins})
	if err != nil {
		return // Accept has sent the error
	}
	defer func() { _ = conn.CloseNow() }() // harmless after a proper close
	conn.SetReadLimit(maxKeys)
	ctx, cancel := a.streams.Join(r.Context())
	defer cancel()

	keys, keysIn := io.Pipe()
	resize := make(chan holdfast.TermSize, 1)
	t := &term{conn: conn, limit: a.cfg.Waits.Write, ctx: ctx}
	if req.Exec != nil {
		if err := t.command(req.Exec); err != nil {
			t.finish(problemEnd(err))
			return
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := t.receive(keysIn, resize)
		keysIn.CloseWithError(err)
		cancel()
	})
	wg.Go(func() { t.pings(a.cfg.Waits.Ping, cancel) })

	res, err := a.cfg.Boxes.Terminal(ctx, id, req, keys, t, resize)
	_ = keys.Close() // unblocks the receiver
	last := termEnd{Exit: &res.ExitCode, Class: res.Class, Signal: res.Signal, Message: res.Message}
	if err != nil {
		last = problemEnd(err)
	}
	t.finish(last)
	cancel()
	wg.Wait()
}

func problemEnd(err error) termEnd {
	p := problem.Of(err).Problem
	return termEnd{Error: &p}
}

// term is the connection to one terminal's client.
type term struct {
	conn  *websocket.Conn
	limit time.Duration
	ctx   context.Context
}

// Write sends output of the terminal to the client. If the client does not accept it in time, the
// error ends the terminal.
func (t *term) Write(p []byte) (int, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.limit)
	defer cancel()
	if err := t.conn.Write(ctx, websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// command reads the client's first message, which names the command, into to. It fails if the
// message is not valid or does not arrive in time.
func (t *term) command(to *holdfast.ExecRequest) error {
	ctx, cancel := context.WithTimeout(t.ctx, t.limit)
	defer cancel()
	typ, data, err := t.conn.Read(ctx)
	var m struct {
		Exec *holdfast.ExecRequest `json:"exec"`
	}
	if err == nil && typ == websocket.MessageText {
		if err = decodeMessage(data, &m); err == nil && m.Exec != nil {
			*to = *m.Exec
			return nil
		}
	}
	why := "the first message from the terminal's client does not name a command"
	if err != nil {
		why += ": " + err.Error()
	}
	return holdfast.Errorf(holdfast.KindInvalid, "terminal", "%s", why).
		WithHint(`send {"exec":{"argv":["bash"]}} first, or leave the parameter exec out`)
}

// receive passes the client's keys to keys and its window sizes to resize, until the client leaves.
func (t *term) receive(keys io.Writer, resize chan holdfast.TermSize) error {
	for {
		typ, data, err := t.conn.Read(t.ctx)
		if err != nil {
			return io.EOF
		}
		if typ == websocket.MessageBinary {
			if _, err := keys.Write(data); err != nil {
				return err
			}
			continue
		}
		size, err := parseResize(data)
		if err != nil {
			_ = t.conn.Close(websocket.StatusPolicyViolation, "bad control message")
			return err
		}
		select { // only the newest size matters
		case <-resize:
		default:
		}
		resize <- size
	}
}

// parseResize parses a text message from the client, which has to be a new window size.
func parseResize(data []byte) (holdfast.TermSize, error) {
	var m struct {
		Resize *holdfast.TermSize `json:"resize"`
	}
	err := decodeMessage(data, &m)
	if err != nil || m.Resize == nil || !sane(m.Resize.Rows) || !sane(m.Resize.Cols) {
		return holdfast.TermSize{}, holdfast.Errorf(holdfast.KindInvalid, "terminal", "%s is not a valid terminal control message", holdfast.Quote(string(data))).
			WithHint(`send {"resize":{"rows":24,"cols":80}}; keys go as binary messages`)
	}
	return *m.Resize, nil
}

// decodeMessage decodes a text message; one with unknown fields is refused.
func decodeMessage(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func sane(n uint16) bool { return n >= 1 && n <= 1000 }

// pings sends WebSocket pings at intervals, and calls dead when the client does not answer one.
func (t *term) pings(every time.Duration, dead context.CancelFunc) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(t.ctx, t.limit)
		err := t.conn.Ping(ctx)
		cancel()
		if err != nil {
			dead()
			return
		}
	}
}

// finish sends the last message and closes the connection.
func (t *term) finish(last termEnd) {
	data, err := json.Marshal(last)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.limit)
	defer cancel()
	if t.conn.Write(ctx, websocket.MessageText, data) == nil {
		_ = t.conn.Close(websocket.StatusNormalClosure, "") // fails if the client has left already
	}
}
