package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/httpapi/socket"
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
	if err := socket.Check(in.r, "terminal", "holdfast terminal ID opens a terminal"); err != nil {
		return nil, err
	}
	if err := a.alive(ctx, id); err != nil {
		return nil, err
	}
	req := holdfast.TerminalRequest{Size: holdfast.TermSize{Rows: cmp.Or(in.Rows, 24), Cols: cmp.Or(in.Cols, 80)}}
	if in.Exec {
		req.Exec = &holdfast.ExecRequest{} // runTerminal reads the command from the client's first message
	}
	return answer(func(w http.ResponseWriter, r *http.Request) { a.runTerminal(w, r, id, req) }), nil
}

func (a *API) runTerminal(w http.ResponseWriter, r *http.Request, id holdfast.SessionID, req holdfast.TerminalRequest) {
	conn, cancel := a.accept(w, r, maxKeys)
	if conn == nil {
		return
	}
	defer func() { _ = conn.CloseNow() }() // does nothing if the connection was closed properly
	defer cancel()
	ctx := conn.Ctx

	keys, keysIn := io.Pipe()
	resize := make(chan holdfast.TermSize, 1)
	t := &term{conn}
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
	wg.Go(func() { t.Pings(a.cfg.Waits.Ping, cancel) })

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
type term struct{ *socket.Conn }

// Write sends output of the terminal to the client. If the client does not accept it in time, the
// error ends the terminal.
func (t *term) Write(p []byte) (int, error) {
	ctx, cancel := context.WithTimeout(t.Ctx, t.Limit)
	defer cancel()
	if err := t.Conn.Write(ctx, websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// command reads the client's first message, which names the command, into to. It fails if the
// message is not valid or does not arrive in time.
func (t *term) command(to *holdfast.ExecRequest) error {
	ctx, cancel := context.WithTimeout(t.Ctx, t.Limit)
	defer cancel()
	typ, data, err := t.Conn.Read(ctx)
	var m struct {
		Exec *holdfast.ExecRequest `json:"exec"`
	}
	if err == nil && typ == websocket.MessageText {
		if err = socket.Decode(data, &m); err == nil && m.Exec != nil {
			*to = *m.Exec
			return nil
		}
	}
	why := "the first message from the terminal's client does not name a command"
	if err != nil {
		why += ": " + err.Error()
	}
	return holdfast.Errorf(holdfast.KindInvalid, "terminal", "%s", why).
		WithHint(`send {"exec":{"argv":["bash"]}} as the first message, or leave out the parameter exec`)
}

// receive passes the client's keys to keys and its window sizes to resize, until the client leaves.
func (t *term) receive(keys io.Writer, resize chan holdfast.TermSize) error {
	for {
		typ, data, err := t.Conn.Read(t.Ctx)
		if err != nil {
			return io.EOF
		}
		if typ == websocket.MessageBinary {
			if _, err := keys.Write(data); err != nil {
				return err
			}
			continue
		}
		size, err := socket.Resize(data)
		if err != nil {
			_ = t.Conn.Close(websocket.StatusPolicyViolation, "bad control message")
			return err
		}
		select { // replace a window size that was not applied yet: only the newest matters
		case <-resize:
		default:
		}
		resize <- size
	}
}

// finish sends the last message and closes the connection.
func (t *term) finish(last termEnd) {
	data, err := json.Marshal(last)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Ctx), t.Limit)
	defer cancel()
	if t.Conn.Write(ctx, websocket.MessageText, data) == nil {
		_ = t.Conn.Close(websocket.StatusNormalClosure, "") // ignore the error: the client may have disconnected
	}
}
