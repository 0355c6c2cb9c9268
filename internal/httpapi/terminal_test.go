package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

func dial(t testing.TB, srv *httptest.Server, id holdfast.SessionID, head http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	return dialAt(t, srv, id, "", head)
}

// dialAt is dial with a query.
func dialAt(t testing.TB, srv *httptest.Server, id holdfast.SessionID, query string, head http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	h := http.Header{"Authorization": {"Bearer " + testToken}}
	for k, v := range head {
		h[k] = v
	}
	conn, resp, err := websocket.Dial(t.Context(), srv.URL+"/v1/sessions/"+string(id)+"/terminal"+query, &websocket.DialOptions{HTTPHeader: h})
	if err == nil {
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, resp, err
}

// echo is a terminal that repeats what it is sent until its input ends.
func echo(ended chan<- error) func(context.Context, holdfast.TerminalRequest, io.Reader, io.Writer, <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
	return func(_ context.Context, _ holdfast.TerminalRequest, in io.Reader, out io.Writer, _ <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
		_, err := io.Copy(out, in)
		ended <- err
		return holdfast.ExecResult{}, err
	}
}

func TestTerminalEndsWhenItsClientLeaves(t *testing.T) {
	f, srv := start(t, nil)
	ended := make(chan error, 1)
	f.term = echo(ended)
	conn, _, err := dial(t, srv, createOne(t, srv), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("abc\x00\xff")); err != nil {
		t.Fatal(err)
	}
	typ, data, err := conn.Read(t.Context())
	if err != nil || typ != websocket.MessageBinary || string(data) != "abc\x00\xff" {
		t.Fatalf("%v %q %v", typ, data, err)
	}
	if err := conn.CloseNow(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the input ended with %v", err)
	}
}

func TestTerminalRefusesBadControlMessages(t *testing.T) {
	for _, msg := range []string{
		`x`, `{}`, `{"resize":null}`, `{"resize":{"rows":0,"cols":1}}`, `{"resize":{"rows":1,"cols":70000}}`, `{"resize":{"rows":1001,"cols":1}}`,
		`{"bogus":1}`, `{"resize":{"rows":1,"cols":1,"depth":3}}`, `[]`,
	} {
		f, srv := start(t, nil)
		ended := make(chan error, 1)
		f.term = echo(ended)
		conn, _, err := dial(t, srv, createOne(t, srv), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(msg)); err != nil {
			t.Fatal(err)
		}
		_, _, err = conn.Read(t.Context())
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%s: %v", msg, err)
		}
		if err := <-ended; !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: the terminal ended with %v", msg, err)
		}
	}
}

// TestACommandGetsTheTerminal: with exec=true the first message names the command, and how
// it ended comes last.
func TestACommandGetsTheTerminal(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	var got *holdfast.ExecRequest
	f.term = func(_ context.Context, req holdfast.TerminalRequest, _ io.Reader, out io.Writer, _ <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
		got = req.Exec
		_, err := out.Write([]byte("here"))
		return holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGKILL", Message: "killed"}, err
	}
	want := holdfast.ExecRequest{Argv: []string{"top", "-b"}, Cwd: "sub", Env: map[string]string{"A": "b"}, TimeoutMS: 7}
	var out bytes.Buffer
	res, err := newClient(t, srv).Terminal(t.Context(), id, holdfast.TerminalRequest{Exec: &want}, strings.NewReader(""), &out, nil)
	if err != nil || out.String() != "here" || got == nil || !reflect.DeepEqual(*got, want) ||
		res.Class != holdfast.ExitSignal || res.ExitCode != -1 || res.Signal != "SIGKILL" || res.Message != "killed" {
		t.Errorf("%+v %v, the server was asked for %+v", res, err, got)
	}
	for _, first := range []string{`x`, `{}`, `{"exec":null}`, `{"exec":{"bogus":1}}`, `{"resize":{"rows":1,"cols":1}}`, ``} {
		got = nil
		conn, _, err := dialAt(t, srv, id, "?exec=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		typ := websocket.MessageText
		if first == "" {
			typ = websocket.MessageBinary // keys before the command
		}
		if err := conn.Write(t.Context(), typ, []byte(first)); err != nil {
			t.Fatal(err)
		}
		var m struct{ Error holdfast.Problem }
		if _, data, err := conn.Read(t.Context()); err != nil || json.Unmarshal(data, &m) != nil || m.Error.Kind != holdfast.KindInvalid || m.Error.Hint == "" || got != nil {
			t.Errorf("%s: %v %s, asked for %+v", first, err, data, got)
		}
	}
}

func TestTerminalIsGuarded(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	f.term = func(context.Context, holdfast.TerminalRequest, io.Reader, io.Writer, <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
		t.Error("the terminal was opened")
		return holdfast.ExecResult{}, nil
	}
	for name, c := range map[string]struct {
		id     holdfast.SessionID
		head   http.Header
		status int
	}{
		"no token":       {id, http.Header{"Authorization": nil}, 401},
		"foreign origin": {id, http.Header{"Origin": {"https://evil.example"}}, 403},
		"unknown":        {holdfast.SessionID(newID()), nil, 404},
	} {
		_, resp, err := dial(t, srv, c.id, c.head)
		if err == nil || resp == nil || resp.StatusCode != c.status || resp.Header.Get("Content-Type") != problem.MediaType {
			t.Errorf("%s: %v %v", name, resp, err)
		}
	}
	if _, err := f.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if _, resp, err := dial(t, srv, id, nil); err == nil || resp.StatusCode != 410 {
		t.Errorf("ended: %v %v", resp, err)
	}
	// A handshake that the library would refuse in plain text.
	for k, v := range map[string]string{"Sec-WebSocket-Version": "12", "Sec-WebSocket-Key": "short", "Upgrade": "h2c", "Connection": "close"} {
		h := http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
		}
		h.Set(k, v)
		resp, body := do(t, srv, request{"GET", "/v1/sessions/" + string(createOne(t, srv)) + "/terminal", "", h})
		if p := wantProblem(t, resp, body, 400, holdfast.KindInvalid); !strings.Contains(p.Detail, "WebSocket") {
			t.Errorf("%s: %+v", k, p)
		}
	}
}

func TestTerminalEndsWhenTheServerStops(t *testing.T) {
	f := newFake()
	a := New(f.config())
	srv := httptest.NewServer(a)
	defer srv.Close()
	ended := make(chan error, 1)
	f.term = echo(ended)
	conn, _, err := dial(t, srv, createOne(t, srv), nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Stop()
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			if ctx.Err() != nil {
				t.Error("the connection stays open")
			}
			return
		}
	}
}

// TestTerminalPingsFindADeadClient: a client that does not answer is cut.
func TestTerminalPingsFindADeadClient(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Waits.Ping, c.Waits.Write = 20*time.Millisecond, 100*time.Millisecond })
	ended := make(chan error, 1)
	f.term = echo(ended)
	if _, _, err := dial(t, srv, createOne(t, srv), nil); err != nil { // nobody reads: no pong
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("a client that is gone is still waited for")
	}
}
