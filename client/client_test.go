package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers with a handler; the client is set to lose patience soon.
func serve(t testing.TB, h http.HandlerFunc) (*Client, *httptest.Server) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		h(w, r)
	}))
	c, err := New(Config{URL: srv.URL + "/", Token: "tok", ReconnectFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	return c, srv
}

func problem(w http.ResponseWriter, kind holdfast.Kind, detail, hint string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(kind.HTTPStatus())
	_ = json.NewEncoder(w).Encode(holdfast.Problem{Kind: kind, Detail: detail, Hint: hint, Status: kind.HTTPStatus()})
}

// hangUp breaks the connection.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func TestNewRefusesWhatIsNoURL(t *testing.T) {
	for _, u := range []string{"x", "127.0.0.1:4100", "ftp://h", "http://", "http://h?x=1", "http://u:p@h", "://", "http://\x00"} {
		if _, err := New(Config{URL: u}); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%q: %v", u, err)
		}
	}
	c, err := New(Config{})
	if err != nil || c.base != DefaultURL {
		t.Errorf("%v %v", c, err)
	}
}

func TestProblemsBecomeErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		kind   holdfast.Kind
		text   string
	}{
		"problem": {func(w http.ResponseWriter, _ *http.Request) { problem(w, holdfast.KindGone, "it is gone", "h") }, holdfast.KindGone, "it is gone"},
		"new kind": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			w.WriteHeader(418)
			_, _ = io.WriteString(w, `{"kind":"teapot","detail":"short and stout"}`)
		}, "teapot", "short and stout"},
		"proxy":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, holdfast.KindUnavailable, "502"},
		"html 404":  {func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, holdfast.KindNotFound, "404"},
		"bad json":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, holdfast.KindInternal, "500"},
		"bad reply": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"session":`) }, holdfast.KindUnavailable, "ended early"},
		"hang up":   {func(w http.ResponseWriter, _ *http.Request) { hangUp(w) }, holdfast.KindUnavailable, "does not answer"},
	} {
		c, _ := serve(t, tc.answer)
		_, err := c.Session(t.Context(), "x")
		var he *holdfast.Error
		if !errors.As(err, &he) || holdfast.KindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v (%s)", name, err, holdfast.KindOf(err))
		}
	}
}

func TestRequestsCarryTokenAndKey(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" || r.Header.Get("Idempotency-Key") != "k" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v", r.Header)
		}
		if r.URL.Path != "/v1/sessions/id/turns" || r.Method != http.MethodPost {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		var m holdfast.SendMessage
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.Text != "<&>" {
			t.Errorf("%+v %v", m, err)
		}
		_, _ = io.WriteString(w, `{"turn":{"id":"t"},"seq":7}`)
	})
	sent, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "<&>", Key: "k"})
	if err != nil || sent.Seq != 7 || sent.Turn.ID != "t" {
		t.Errorf("%+v %v", sent, err)
	}
}

// TestOnlyKeyedRequestsAreRepeated: a request whose connection breaks may have
// had its effect.
func TestOnlyKeyedRequestsAreRepeated(t *testing.T) {
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if calls.Add(1) < 3 {
			hangUp(w)
			return
		}
		_, _ = io.WriteString(w, `{"turn":{"id":"t"}}`)
	})
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x"}); !holdfast.IsKind(err, holdfast.KindUnavailable) || calls.Load() != 1 {
		t.Errorf("without a key: %v after %d calls", err, calls.Load())
	}
	calls.Store(0)
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "k"}); err != nil || calls.Load() != 3 {
		t.Errorf("with a key: %v after %d calls", err, calls.Load())
	}
}

// TestAServerThatDiesOfARequest: the connection was kept from an earlier request, so http.Transport repeats the request itself
// and finds nobody. The message may have arrived all the same. So the client sends it again under the same key until the server is
// back. If the client gives up, its error says that the message may have arrived.
func TestAServerThatDiesOfARequest(t *testing.T) {
	var mu sync.Mutex
	var ln net.Listener
	var keys []string
	listen := func(at string) net.Listener {
		mu.Lock()
		defer mu.Unlock()
		var err error
		if ln, err = net.Listen("tcp", at); err != nil {
			t.Fatal(err)
		}
		return ln
	}
	at := listen("127.0.0.1:0").Addr().String()
	var back sync.Once
	came := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(keys)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			mu.Lock()
			keys = append(keys, key)
			mu.Unlock()
		}
		if n := len(came()); n == 1 || n > 2 {
			mu.Lock()
			ln.Close()
			mu.Unlock()
			hangUp(w)
			return
		}
		_, _ = io.WriteString(w, `{"turn":{"id":"t"}}`)
	})}
	go srv.Serve(ln)
	defer srv.Close()
	c, err := New(Config{URL: "http://" + at, Waiting: func(w Wait) {
		if w.Err != nil {
			back.Do(func() { go srv.Serve(listen(at)) })
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Session(t.Context(), "id"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "k"}); err != nil || !slices.Equal(came(), []string{"k", "k"}) {
		t.Errorf("%v after the keys %q", err, came())
	}
	c.cfg.ReconnectFor = 2 * time.Second
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "l"}); !MayHaveArrived(err) {
		t.Errorf("given up: %v, and is said to have never arrived", err)
	}
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "m"}); err == nil || MayHaveArrived(err) {
		t.Errorf("nobody listens: %v, and is said to have arrived perhaps", err)
	}
}

// TestAnAnswerThatEndsEarlyIsAskedForAgain: the server dies between the head of its answer and the body.
func TestAnAnswerThatEndsEarlyIsAskedForAgain(t *testing.T) {
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Content-Length", "23")
			_, _ = io.WriteString(w, `{"turn":{`)
		case 2:
			_, _ = io.WriteString(w, `{"turn":{"id":"t"}}`)
		default:
			_, _ = io.WriteString(w, `<html>`)
		}
	})
	if sent, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "k"}); err != nil || sent.Turn.ID != "t" {
		t.Errorf("%+v, %v after %d calls", sent, err, calls.Load())
	}
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "k"}); !holdfast.IsKind(err, holdfast.KindInternal) || calls.Load() != 3 {
		t.Errorf("no JSON: %v after %d calls", err, calls.Load())
	}
}

func TestServerThatIsNotThereIsNotWaitedFor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	c, err := New(Config{URL: "http://" + addr, ReconnectFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Send(t.Context(), "id", holdfast.SendMessage{Text: "x", Key: "k"}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Error(err)
	}
	for _, err := range c.Follow(t.Context(), "id", 0) {
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "holdfast serve") {
			t.Error(err)
		}
	}
	if _, err := c.Terminal(t.Context(), "id", holdfast.TerminalRequest{}, strings.NewReader(""), io.Discard, nil); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Error(err)
	}
}

func TestGivingUpIsSaid(t *testing.T) {
	got := make(chan struct{})
	c, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(got)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("lunch")
	go func() {
		<-got
		cancel(why)
	}()
	if _, err := c.Session(ctx, "x"); !errors.Is(err, why) || !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Error(err)
	}
}

func TestAllSessionsGoesThroughThePages(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("status") != "active" {
			t.Errorf("%s", r.URL)
		}
		switch r.URL.Query().Get("cursor") {
		case "":
			_, _ = io.WriteString(w, `{"sessions":[{"id":"a"},{"id":"b"}],"next":"n"}`)
		case "n":
			_, _ = io.WriteString(w, `{"sessions":[{"id":"c"}]}`)
		}
	})
	var ids []string
	for s, err := range c.AllSessions(t.Context(), holdfast.SessionFilter{Status: "active"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(s.ID))
	}
	if strings.Join(ids, "") != "abc" {
		t.Errorf("%v", ids)
	}
	for range c.AllSessions(t.Context(), holdfast.SessionFilter{Status: "active"}) {
		break // the consumer may stop
	}
}

func TestFilePaths(t *testing.T) {
	for name, want := range map[string]string{
		"": "/files", ".": "/files", "./": "/files", "a": "/files/a", "a/b": "/files/a/b", "a//b/": "/files/a/b", "./a": "/files/a",
		"/": "/files/%2F", "/etc/passwd": "/files/%2Fetc/passwd", "../x": "/files/%2E%2E/x", "a/../../x": "/files/%2E%2E/x",
		"a b?#%": "/files/a%20b%3F%23%25", "ü": "/files/%C3%BC", "..a": "/files/..a",
	} {
		if got := filePath("id", name); got != "/v1/sessions/id"+want {
			t.Errorf("%q: %s, not %s", name, got, want)
		}
	}
}

func TestExecStreamThatBreaksHasNoResult(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "event: stdout\ndata: {\"data\":\"aGk=\"}\n\n")
		w.(http.Flusher).Flush()
		hangUp(w)
	})
	var out strings.Builder
	_, err := c.ExecStream(t.Context(), "id", holdfast.ExecRequest{Command: "x"}, &out, io.Discard)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || out.String() != "hi" {
		t.Errorf("%v after %q", err, out.String())
	}
}

// TestAFileThatBreaksOff: whatever file or archive is read, a body that ends too early is an error with a kind.
func TestAFileThatBreaksOff(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.Header().Set("Content-Disposition", "attachment")
		_, _ = io.WriteString(w, "a piece")
	})
	for name, open := range map[string]func() (io.ReadCloser, error){
		"audit":  func() (io.ReadCloser, error) { return c.Audit(t.Context(), "") },
		"backup": func() (io.ReadCloser, error) { return c.Backup(t.Context()) },
		"file":   func() (io.ReadCloser, error) { return c.ReadFile(t.Context(), "id", "f") },
		"tree":   func() (io.ReadCloser, error) { return c.ReadTree(t.Context(), "id", "d") },
	} {
		body, err := open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if string(got) != "a piece" || holdfast.KindOf(err) != holdfast.KindUnavailable {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.DiffCheckpoints(t.Context(), "id", holdfast.CompareCheckpoints{}, io.Discard); holdfast.KindOf(err) != holdfast.KindUnavailable {
		t.Errorf("diff: %v", err)
	}
}

// TestATerminalKeepsTheServersError: a problem document of more than the 1024 bytes that the WebSocket library keeps.
func TestATerminalKeepsTheServersError(t *testing.T) {
	long := strings.Repeat("x", 3000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(w, holdfast.KindConflict, long, "do something else")
	}))
	defer srv.Close()
	c, err := New(Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Terminal(t.Context(), "s", holdfast.TerminalRequest{}, strings.NewReader(""), io.Discard, nil)
	if !holdfast.IsKind(err, holdfast.KindConflict) || holdfast.HintOf(err) != "do something else" || !strings.Contains(err.Error(), long) {
		t.Errorf("%.200v, hint %q", err, holdfast.HintOf(err))
	}
}

// TestADiffThatCannotBeWritten: the error of the writer is one of the package, too.
func TestADiffThatCannotBeWritten(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a diff")
	}))
	defer srv.Close()
	c, err := New(Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, w := io.Pipe()
	_ = r.Close()
	_, err = c.Diff(t.Context(), "s", holdfast.DiffPatch, w)
	var known *holdfast.Error
	if !errors.As(err, &known) || known.Kind != holdfast.KindInternal || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// TestHintsOfServersThatAreNotThere: the command of a hint starts a server at the address that the client asks.
func TestHintsOfServersThatAreNotThere(t *testing.T) {
	refused := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	})}
	const check = "the address in --url, HOLDFAST_URL or the context"
	for base, want := range map[string]string{
		"":                          "start it with: holdfast serve",
		DefaultURL + "/":            "start it with: holdfast serve",
		"http://127.0.0.1:1":        "start it with: holdfast serve --listen 127.0.0.1:1; or check " + check,
		"http://localhost":          "start it with: holdfast serve --listen localhost:80; or check " + check,
		"http://[::1]:4100":         "start it with: holdfast serve --listen '[::1]:4100'; or check " + check,
		"https://127.0.0.1:4100":    "check that a server runs on this machine, and " + check,
		"http://127.0.0.1:4100/sub": "check that a server runs on this machine, and " + check,
		"http://192.0.2.1:4100":     "check that a server runs on that machine and listens there",
	} {
		c, err := New(Config{URL: base, HTTP: refused})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Session(t.Context(), "id"); holdfast.HintOf(err) != want {
			t.Errorf("%q: %v, hint %q, want %q", base, err, holdfast.HintOf(err), want)
		}
	}
	// A client that asks for the address before each request finds the server wherever it listens.
	c, err := New(Config{HTTP: refused, Address: func() string { return "http://127.0.0.1:1" }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Session(t.Context(), "id"); holdfast.HintOf(err) != "start it with: holdfast serve" {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
