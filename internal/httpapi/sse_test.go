package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

func testLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// raw opens a stream by hand.
func openStream(t testing.TB, url, token string, head map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range head {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestSSEFrames(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	resp := openStream(t, srv.URL+"/v1/sessions/"+string(id)+"/events", testToken, nil)
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	f.journal.Publish(id, holdfast.DeltaText, "", holdfast.TextDelta{Text: "line\r\nbreak"})
	f.append(t.Context(), id, "", holdfast.EventNotice, holdfast.Notice{Code: "c", Text: "a\nb"})
	want := []string{
		"id: 1", "event: session.created", "data: {", "",
		"event: text.delta", "data: {", "",
		"id: 2", "event: notice", "data: {", "",
	}
	lines := bufio.NewScanner(resp.Body)
	for i, w := range want {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if got := lines.Text(); got != w && (w != "data: {" || !strings.HasPrefix(got, w)) {
			t.Fatalf("line %d is %q, not %q", i, got, w)
		}
	}
}

func TestSSEGoesOnFromTheCursor(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	for range 5 {
		f.append(t.Context(), id, "", holdfast.EventNotice, holdfast.Notice{Code: "c"})
	}
	url := srv.URL + "/v1/sessions/" + string(id) + "/events"
	for _, c := range []struct {
		query, header string
		first         int
	}{{"?after=3", "", 4}, {"?after=1", "5", 6}, {"", "2", 3}, {"?type=session.created", "", 1}} {
		head := map[string]string{}
		if c.header != "" {
			head["Last-Event-ID"] = c.header
		}
		resp := openStream(t, url+c.query, testToken, head)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil || line != fmt.Sprintf("id: %d\n", c.first) {
			t.Errorf("%+v: %q %v", c, line, err)
		}
	}
	resp, body := do(t, srv, request{"GET", "/v1/sessions/" + string(id) + "/events?after=7", "", http.Header{"Accept": {"text/event-stream"}}})
	wantProblem(t, resp, body, 400, holdfast.KindInvalid)
	resp, _ = do(t, srv, request{"HEAD", "/v1/sessions/" + string(id) + "/events", "", http.Header{"Accept": {"text/event-stream"}}})
	if resp.StatusCode != 200 {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
}

// TestASH17_StreamOfATurnGoesOnBeyondOtherTurns reads the answer itself: the
// client would reconnect and hide a stream that closes early.
func TestASH17_StreamOfATurnGoesOnBeyondOtherTurns(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/sessions/"+string(id)+"/turns", strings.NewReader(`{"text":"hold"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + testToken}, "Content-Type": {"application/json"}, "Prefer": {"respond-async, stream; x=1"},
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Preference-Applied") != "stream" || resp.Header.Get("Holdfast-Seq") != "1" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	if _, err := f.Send(t.Context(), id, holdfast.SendMessage{Text: "other"}); err != nil {
		t.Fatal(err)
	}
	f.finish(t.Context(), f.turns[id][0])
	f.append(t.Context(), id, "", holdfast.EventNotice, holdfast.Notice{Code: "late"})
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{"event: turn.completed": 1, "event: message.assistant": 1, `"Text":"other"`: 0, "late": 0, "event: ": 4} {
		if got := strings.Count(string(body), what); got != want {
			t.Errorf("%q stands %d times in %s", what, got, body)
		}
	}
}

// recorder is a response writer that remembers.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder
	head http.Header
}

func (r *recorder) Header() http.Header { return r.head }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Flush()              {}
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// TestASH15_StalledReaderIsCutAndBlocksNobody opens a stream, reads nothing and
// fills it; meanwhile others read and the writer appends.
func TestASH15_StalledReaderIsCutAndBlocksNobody(t *testing.T) {
	f := newFake()
	cfg := f.config()
	cfg.Waits.Write = 2 * time.Second
	a := New(cfg)
	srv := httptest.NewUnstartedServer(a)
	var mu sync.Mutex
	closed := map[string]bool{}
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			mu.Lock()
			closed[c.RemoteAddr().String()] = true
			mu.Unlock()
		}
	}
	srv.Start()
	defer srv.Close()
	defer a.Stop()
	id := createOne(t, srv)
	c := newClient(t, srv)

	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/sessions/%s/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", id, testToken)
	first := make([]byte, 12)
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != "HTTP/1.1 200" {
		t.Fatalf("%q %v", first, err)
	}

	const n = 400
	text := strings.Repeat("x", 64<<10) // 25 MB in all: no socket buffer takes that
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			f.append(t.Context(), id, "", holdfast.EventNotice, holdfast.Notice{Code: "c", Text: text})
		}
	})
	seen := int64(0)
	for e, err := range c.Follow(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != seen+1 {
			t.Fatalf("event %d after %d", e.Seq, seen)
		}
		if seen = e.Seq; seen == n+1 {
			break
		}
	}
	wg.Wait()
	testkit.Eventually(t, "the stalled reader is cut", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return closed[conn.LocalAddr().String()]
	})
}

func TestStopEndsStreamsAndServerShutsDown(t *testing.T) {
	f := newFake()
	srv := NewServer(f.config())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	s, _, err := f.Create(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	f.exec = func(ctx context.Context, _ holdfast.ExecRequest, _, _ io.Writer) (holdfast.ExecResult, error) {
		close(running)
		<-ctx.Done()
		return holdfast.ExecResult{}, ctx.Err()
	}
	url := "http://" + ln.Addr().String() + "/v1/sessions/" + string(s.ID)
	resp := openStream(t, url+"/events", testToken, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/exec", strings.NewReader(`{"command":"x"}`))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = http.Header{"Authorization": {"Bearer " + testToken}, "Content-Type": {"application/json"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		wantProblem(t, resp, body, 503, holdfast.KindUnavailable)
	})
	<-running
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream broke instead of ending: %v", err)
	}
	wg.Wait()
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
}

func TestExecStopsWhenItsClientLeaves(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Waits.Ping = 20 * time.Millisecond })
	id := createOne(t, srv)
	ended := make(chan struct{})
	f.exec = func(ctx context.Context, _ holdfast.ExecRequest, _, _ io.Writer) (holdfast.ExecResult, error) {
		<-ctx.Done()
		close(ended)
		return holdfast.ExecResult{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, srv)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.ExecStream(ctx, id, holdfast.ExecRequest{Command: "x"}, io.Discard, io.Discard); err == nil {
			t.Error("a command given up has a result")
		}
	})
	testkit.Eventually(t, "the command begins", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, ok := f.last.(holdfast.ExecRequest)
		return ok
	})
	cancel()
	<-ended
	wg.Wait()
}

func TestSlowSenderIsCut(t *testing.T) {
	_, srv := start(t, func(c *Config) { c.Waits.Read = 2 * time.Second })
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", testToken)
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	wantProblem(t, resp, body, 400, holdfast.KindInvalid)
}
