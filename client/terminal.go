package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// Terminal runs a command, or a login shell, on a terminal in the session's box. It sends in as
// the keyboard input and writes the output to out; the end of in ends the command's input. It
// returns how the command ended; the result has no output. A blocked Read of in may outlast the
// call. New terminal sizes come from resize, which may be nil.
func (c *Client) Terminal(ctx context.Context, id holdfast.SessionID, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
	none := holdfast.ExecResult{}
	conn, err := c.dialTerminal(ctx, id, req)
	if err != nil {
		return none, err
	}
	defer func() { _ = conn.CloseNow() }() // does nothing if the connection was closed properly before
	if req.Exec != nil {
		first, err := json.Marshal(map[string]any{"exec": req.Exec})
		if err == nil {
			err = conn.Write(ctx, websocket.MessageText, first)
		}
		if err != nil {
			return none, broken(ctx, call{method: http.MethodGet, path: sessionPath(id, "/terminal")}, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { resizes(ctx, conn, resize) })
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { c.heartbeats(ctx, conn) })
	go keys(ctx, conn, in)
	for {
		typ, data, err := conn.Read(ctx)
		if err != nil {
			return none, broken(ctx, call{method: http.MethodGet, path: sessionPath(id, "/terminal")}, err)
		}
		if typ == websocket.MessageBinary {
			if _, err := out.Write(data); err != nil {
				return none, holdfast.Errorf(holdfast.KindInternal, "client", "the terminal's output cannot be written: %w", err)
			}
			continue
		}
		var m struct {
			Exit    *int               `json:"exit"`
			Class   holdfast.ExitClass `json:"class"`
			Signal  string             `json:"signal"`
			Message string             `json:"message"`
			Error   *holdfast.Problem  `json:"error"`
		}
		switch err := json.Unmarshal(data, &m); {
		case err != nil:
			return none, holdfast.Errorf(holdfast.KindInternal, "client", "the server sent a terminal message that is not valid JSON: %s", holdfast.Quote(string(data)))
		case m.Error != nil:
			return none, fromProblem(*m.Error)
		case m.Exit != nil:
			_ = conn.Close(websocket.StatusNormalClosure, "") // the server closes the connection too, so an error here does not matter
			return holdfast.ExecResult{Class: m.Class, ExitCode: *m.Exit, Signal: m.Signal, Message: m.Message}, nil
		}
	}
}

func (c *Client) dialTerminal(ctx context.Context, id holdfast.SessionID, req holdfast.TerminalRequest) (*websocket.Conn, error) {
	q := url.Values{}
	setInt(q, "rows", int64(req.Size.Rows))
	setInt(q, "cols", int64(req.Size.Cols))
	setTrue(q, "exec", req.Exec != nil)
	at := sessionPath(id, "/terminal")
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	return c.dial(ctx, at)
}

// dial opens a WebSocket at a path of the API.
func (c *Client) dial(ctx context.Context, at string) (*websocket.Conn, error) {
	h := http.Header{}
	c.authorize(h)
	base := c.find()
	w := c.newWait()
	w.begin(nil)
	// The server resumes a paused session first, which may start a box and take long.
	waiting, p := patient(ctx, slowFor*c.cfg.FirstByte)
	defer p.end()
	answers := &http.Client{Transport: &problems{next: c.http.Transport}, CheckRedirect: c.http.CheckRedirect, Jar: c.http.Jar}
	conn, _, err := websocket.Dial(waiting, "ws"+strings.TrimPrefix(base, "http")+at, &websocket.DialOptions{HTTPClient: answers, HTTPHeader: h})
	if err != nil {
		if problem := (*holdfast.Error)(nil); errors.As(err, &problem) {
			w.end(true)
			return nil, problem
		}
		w.end(false)
		return nil, c.unreachable(ctx, base, because(waiting, err), p.connected.Load())
	}
	w.end(true)
	conn.SetReadLimit(4 << 20)
	return conn, nil
}

// problems is a transport that returns an answer with an error status as the server's error, because
// websocket.Dial keeps only the first 1024 bytes of such an answer.
type problems struct{ next http.RoundTripper }

// RoundTrip sends a request and returns its answer, or the server's error.
func (p *problems) RoundTrip(req *http.Request) (*http.Response, error) {
	next := p.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	defer drop(resp.Body)
	return nil, problemOf(resp)
}

// heartbeats pings the server, and closes the connection if no answer comes within
// Config.Silence.
func (c *Client) heartbeats(ctx context.Context, conn *websocket.Conn) {
	for clock.Pause(ctx, c.cfg.Silence/3) == nil {
		ping, cancel := context.WithTimeout(ctx, c.cfg.Silence)
		err := conn.Ping(ping)
		cancel()
		if err != nil {
			_ = conn.CloseNow() // the goroutine that reads the connection reports that it is broken
			return
		}
	}
}

// endAgain is the time after which the end of input (^D) is sent again, because a shell loses a ^D
// that comes before the shell has begun to read.
const endAgain = 300 * time.Millisecond

// keys sends the typed input. At the end of the input it ends an unfinished line with a carriage return, and
// sends ^D repeatedly until the connection is closed.
func keys(ctx context.Context, conn *websocket.Conn, in io.Reader) {
	buf := make([]byte, 32<<10)
	end := []byte{4}
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if conn.Write(ctx, websocket.MessageBinary, bytes.Clone(buf[:n])) != nil {
				return
			}
			if end = []byte{4}; buf[n-1] != '\n' && buf[n-1] != '\r' {
				end = []byte{'\r', 4}
			}
		}
		if err != nil {
			break
		}
	}
	again := time.NewTicker(endAgain)
	defer again.Stop()
	for conn.Write(ctx, websocket.MessageBinary, end) == nil {
		end = []byte{4}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

func resizes(ctx context.Context, conn *websocket.Conn, resize <-chan holdfast.TermSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				return
			}
			data, err := json.Marshal(map[string]holdfast.TermSize{"resize": size})
			if err != nil || conn.Write(ctx, websocket.MessageText, data) != nil {
				return
			}
		}
	}
}
