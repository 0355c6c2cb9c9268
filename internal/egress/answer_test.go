package egress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// answering is a broker in front of one answer.
func answering(t *testing.T, turn *turn, h http.HandlerFunc, tune func(*egress.BrokerConfig)) *rig {
	t.Helper()
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	return broker(t, turn, front.URL, tune)
}

const started = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n" +
	"data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"0123456789012345678901234567890123456789\"}}\n\n"

// A stream that breaks off is cut for the client, too, and counted with what was said.
func TestACutStreamIsCounted(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter){
		"dropped":     func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"ended early": func(http.ResponseWriter) {},
		"an error": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"too much\"}}\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn := newTurn("anthropic/x")
			r := answering(t, turn, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, started)
				w.(http.Flusher).Flush()
				end(w)
			}, nil)
			resp, err := r.client.Post("http://localhost/v1/messages", "", strings.NewReader(message("x")))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil || !strings.HasPrefix(string(raw), started) {
				t.Errorf("%q %v", raw, err)
			}
			testkit.Eventually(t, "it is recorded", func() bool { return len(turn.recorded()) == 1 })
			ev := turn.recorded()[0]
			if ev.Status == holdfast.StatusOK || ev.Usage.InputTokens != 7 || ev.Usage.OutputTokens != 10 || turn.calls != 0 || turn.reserved != 0 {
				t.Errorf("%+v, %d calls", ev, turn.calls)
			}
			if name == "an error" && (ev.Status != "api" || ev.Message != "too much") {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// TestHZ7_LeavingEarlyIsNotFree: a client that goes away before the end pays for what
// it was sent, and the provider is let go.
func TestHZ7_LeavingEarlyIsNotFree(t *testing.T) {
	for _, sent := range []string{"", started} {
		gone, asked := make(chan struct{}), make(chan struct{})
		turn := newTurn("anthropic/x")
		r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
			_ = readAll(r)
			close(asked)
			if sent != "" {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, sent)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
			close(gone)
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/messages", strings.NewReader(message("x")))
		if sent == "" {
			go func() { <-asked; cancel() }()
			if _, err := r.client.Do(req); err == nil {
				t.Fatal("it was answered")
			}
		} else {
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadFull(resp.Body, make([]byte, len(sent)))
			cancel()
			resp.Body.Close()
		}
		<-gone
		testkit.Eventually(t, "it is recorded", func() bool { return len(turn.recorded()) == 1 })
		ev := turn.recorded()[0]
		if ev.Status != "canceled" || ev.Usage.InputTokens == 0 || sent != "" && ev.Usage.OutputTokens != 10 {
			t.Errorf("%+v", ev)
		}
		cancel()
	}
}

// The end of a turn cuts what its box still asks.
func TestTheEndOfATurnCutsItsRequests(t *testing.T) {
	turn := newTurn("anthropic/x")
	asked := make(chan struct{})
	r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
		_ = readAll(r)
		close(asked)
		<-r.Context().Done()
	}, nil)
	go func() { <-asked; close(turn.done) }()
	status, _, body := r.post("/v1/messages", message("x"))
	if status != 503 || len(turn.recorded()) != 1 {
		t.Errorf("%d %s %+v", status, body, turn.recorded())
	}
}

// A provider that falls silent is given up.
func TestASilentProviderIsGivenUp(t *testing.T) {
	turn := newTurn("anthropic/x")
	r := answering(t, turn, func(_ http.ResponseWriter, r *http.Request) {
		_ = readAll(r)
		<-r.Context().Done()
	}, func(c *egress.BrokerConfig) {
		up := c.Upstreams[egress.Anthropic]
		up.Transport = &remote.Transport{Base: up.Transport, Silence: 50 * time.Millisecond}
		c.Upstreams[egress.Anthropic] = up
	})
	if status, _, body := r.post("/v1/messages", message("x")); status != 503 || !strings.Contains(body, "nothing came") {
		t.Errorf("%d %s", status, body)
	}
	if evs := turn.recorded(); len(evs) != 1 || evs[0].Status != "stall" || evs[0].Usage != (holdfast.Usage{}) {
		t.Errorf("%+v", evs)
	}
}

// A provider's limit goes through as it is; a long wait is not for the client to wait.
func TestLimitsAreRemembered(t *testing.T) {
	turn := newTurn("anthropic/x")
	after, status := "", 429
	r := answering(t, turn, func(w http.ResponseWriter, _ *http.Request) {
		if status == 200 {
			_, _ = io.WriteString(w, `{"usage":{"input_tokens":1}}`)
			return
		}
		w.Header().Set("Retry-After", after)
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down, `+theKey+`"}}`)
	}, nil)
	for _, tc := range []struct {
		after string
		retry string
	}{{"5", ""}, {"61", "false"}} {
		after = tc.after
		got, h, body := r.post("/v1/messages", message("x"))
		if got != 429 || h.Get("Retry-After") != tc.after || h.Get("X-Should-Retry") != tc.retry || h.Get("Set-Cookie") != "" {
			t.Errorf("%d %v", got, h)
		}
		if strings.Contains(body, theKey) || !strings.Contains(body, "slow down, ***") {
			t.Errorf("the key came back: %s", body)
		}
	}
	l, ok := r.b.LastLimit(session)
	if !ok || l.Status != 429 || l.Class != "rate_limit" || l.RetryAfter != 61*time.Second || l.Until() != l.At.Add(l.RetryAfter) || strings.Contains(l.Message, theKey) {
		t.Errorf("%+v", l)
	}
	status = 529
	r.post("/v1/messages", message("x"))
	if l, _ := r.b.LastLimit(session); l.Status != 529 {
		t.Errorf("%+v", l)
	}
	status = 200
	r.post("/v1/messages", message("x"))
	if l, ok := r.b.LastLimit(session); ok {
		t.Errorf("after an answer: %+v", l)
	}
	for _, ev := range turn.recorded() {
		if strings.Contains(ev.Message, theKey) {
			t.Errorf("the key is in the log: %+v", ev)
		}
	}
}

// A redirect would take the key elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	turn := newTurn("anthropic/x")
	r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
	}, nil)
	if status, h, body := r.post("/v1/messages", message("x")); status != 503 || h.Get("Location") != "" || strings.Contains(body, "evil") {
		t.Errorf("%d %v %s", status, h, body)
	}
}

// TestHZ7_OnlyThePathsOnTheListAreThere.
func TestHZ7_OnlyThePathsOnTheListAreThere(t *testing.T) {
	asked := 0
	r := answering(t, newTurn("anthropic/x"), func(http.ResponseWriter, *http.Request) { asked++ }, nil)
	for _, path := range []string{
		"/v1/files", "/v1/messages/batches", "/v1/complete", "/v1/organizations", "/", "/v1/messages/", "/v1/messages/../files", "/v1//messages",
		"/v1/%6dessages", "/v1/messages?beta=false", "/v1/messages?x=y", "/v1/messages?beta=true&beta=x", "/V1/messages", "/v1/responses", "/v1/embeddings",
	} {
		if status, _, body := r.post(path, message("x")); status < 400 || status > 404 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} {
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://localhost/v1/messages", nil)
		resp, err := r.client.Do(req)
		if err != nil || resp.StatusCode != 400 {
			t.Errorf("%s: %v %v", method, resp, err)
		}
		resp.Body.Close()
	}
	// The API of another provider than the session's.
	if status, _, body := r.post("/v1/chat/completions", message("x")); status != 403 || !strings.Contains(body, "openai") {
		t.Errorf("%d %s", status, body)
	}
	if asked > 0 {
		t.Errorf("%d requests went out", asked)
	}
}

// Bodies are bounded, announced or not, and so are requests at once.
func TestRequestsAreBounded(t *testing.T) {
	hold := make(chan struct{})
	came := make(chan struct{}, 8)
	r := answering(t, newTurn("anthropic/x"), func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		<-hold
	}, func(c *egress.BrokerConfig) { c.MaxBody, c.MaxBuffered, c.MaxRequests = 1<<20, 4<<20, 2 })
	long := message(strings.Repeat("x", 1<<20))
	if status, _, body := r.post("/v1/messages", long); status != 413 || !strings.Contains(body, "1048576") {
		t.Errorf("%d %s", status, body)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/messages", io.MultiReader(strings.NewReader(long)))
	resp, err := r.client.Do(req)
	if err != nil || resp.StatusCode != 413 {
		t.Errorf("chunked: %v %v", resp, err)
	}
	resp.Body.Close()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { r.post("/v1/messages", message("x")) })
		<-came
	}
	if status, h, body := r.post("/v1/messages", message("x")); status != 429 || h.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s", status, body)
	}
	close(hold)
	both.Wait()
}

// TestHZ7_ABudgetRefusesBeforeTheCall: nothing goes out, and the client is told why.
func TestHZ7_ABudgetRefusesBeforeTheCall(t *testing.T) {
	asked := 0
	turn := newTurn("anthropic/x")
	turn.bound = 900
	r := answering(t, turn, func(http.ResponseWriter, *http.Request) { asked++ }, nil)
	status, h, body := r.post("/v1/messages", message("x"))
	if status != 403 || !strings.Contains(body, "budget of tokens") || !strings.Contains(body, "raise it") || h.Get("X-Should-Retry") != "false" || asked > 0 {
		t.Errorf("%d %s, %d went out", status, body, asked)
	}
}

// A record that the log refuses ends the answer: nothing more may be done in the turn.
func TestAnAnswerThatCannotBeRecordedIsCut(t *testing.T) {
	turn := newTurn("anthropic/x")
	turn.fail = holdfast.Errorf(holdfast.KindUnavailable, "store", "full")
	r := answering(t, turn, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, started+"data: {\"type\":\"message_stop\"}\n\n")
	}, nil)
	resp, err := r.client.Post("http://localhost/v1/messages", "", strings.NewReader(message("x")))
	if err != nil {
		return // it was cut before its first byte went out
	}
	defer resp.Body.Close()
	if raw, err := io.ReadAll(resp.Body); err == nil || strings.Contains(string(raw), "message_stop") {
		t.Errorf("%q %v", raw, err)
	}
}

// What was said is recorded where the server is set to, and nowhere else.
func TestContentIsRecordedWhenSwitchedOn(t *testing.T) {
	turn := newTurn("anthropic/claude-sonnet-4-5")
	r := broker(t, turn, upstream(t).URL(), func(c *egress.BrokerConfig) { c.Content = true })
	r.post("/v1/messages", message("a word of mine"))
	if ev := turn.recorded()[0]; !strings.Contains(ev.Sent, "a word of mine") || !strings.Contains(ev.Answer, "You have sent") {
		t.Errorf("%+v", ev)
	}
}

// Models are listed where the provider lists them; a box learns nothing between turns.
func TestModelsAreListed(t *testing.T) {
	r := answering(t, newTurn("openai/x"), func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"at":%q,"key":%t}`, r.URL.Path, r.Header.Get("Authorization") == "Bearer "+theKey)
	}, nil)
	resp, err := r.client.Get("http://localhost/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, _ := io.ReadAll(resp.Body); string(raw) != `{"at":"/v1/models","key":true}` {
		t.Errorf("%s", raw)
	}
}

// What is refused is in the log, once for a flood of it; a budget that ran out is the
// turn's own, and in its log as such.
func TestRefusedRequestsAreInTheLog(t *testing.T) {
	w := &world{T: t}
	r := answering(t, newTurn("anthropic/x"), func(http.ResponseWriter, *http.Request) {}, func(c *egress.BrokerConfig) { c.Decisions = w })
	for range 5 {
		r.post("/v1/messages", with(`"mcp_servers":[{"type":"url"}]`))
	}
	_ = r.b.Close()
	evs := w.recorded()
	if len(evs) != 2 || evs[0].typ != holdfast.EventEgressDenied || evs[0].d.Via != "model" || evs[0].d.Path != "/v1/messages" ||
		!strings.Contains(evs[0].d.Reason, "mcp_servers") || evs[1].d.Count != 4 {
		t.Errorf("%+v", evs)
	}
}

// TestStreamsMayEndWithoutDone: a stream of the chat API whose provider sends no [DONE] is passed on to its end and counted.
func TestStreamsMayEndWithoutDone(t *testing.T) {
	const said = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":9}}"
	turn := newTurn("openai/x")
	r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
		_ = readAll(r)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, said)
	}, nil)
	if status, _, got := r.post("/v1/chat/completions", `{"model":"x","stream":true,"messages":[]}`); status != 200 || got != said {
		t.Errorf("%d %q", status, got)
	}
	evs := turn.recorded()
	if len(evs) != 1 || evs[0].Status != holdfast.StatusOK || evs[0].Usage.InputTokens != 8 || evs[0].Usage.OutputTokens != 9 || turn.calls != 1 {
		t.Errorf("%+v, %d calls", evs, turn.calls)
	}
}

// dated is a connection that counts the writes without a deadline.
type dated struct {
	net.Conn
	mu      sync.Mutex
	until   time.Time
	undated int
}

func (c *dated) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = at
	return c.Conn.SetWriteDeadline(at)
}

func (c *dated) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.until.IsZero() {
		c.undated++
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// TestAnswersThatNobodyReadsEnd: every write of an answer to a box has a deadline, so that a box that does not read it
// holds no memory for ever.
func TestAnswersThatNobodyReadsEnd(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch _ = readAll(r); r.Header.Get("User-Agent") {
		case "refused":
			w.WriteHeader(429)
			_, _ = io.WriteString(w, long)
		case "stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, started+"data: {\"type\":\"message_stop\"}\n\n")
		default:
			_, _ = io.WriteString(w, long)
		}
	}))
	t.Cleanup(s.Close)
	r := broker(t, newTurn("anthropic/x"), s.URL, nil)
	w := newWorld(t, s.Listener.Addr().String(), []string{"a.example"})
	w.names["a.example"] = [][]netip.Addr{{public}}
	model := func(as, body string) string {
		return fmt.Sprintf("POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nUser-Agent: %s\r\nContent-Length: %d\r\n\r\n%s", as, len(body), body)
	}
	for name, one := range map[string]struct {
		serve   func(holdfast.SessionID, string, net.Conn)
		request string
		least   int
	}{
		"whole":     {r.b.Serve, model("whole", message("x")), len(long)},
		"error":     {r.b.Serve, model("refused", message("x")), 1000},
		"stream":    {r.b.Serve, model("stream", message("x")), len(started)},
		"not valid": {r.b.Serve, model("bad", "x"), 100},
		"plain":     {w.p.Serve, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", len(long)},
		"denied":    {w.p.Serve, "GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n", 50},
	} {
		here, there := pipe(t)
		c := &dated{Conn: there}
		one.serve(session, "", c)
		_ = here.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(here, one.request)
		got, err := io.ReadAll(here)
		if err != nil || len(got) < one.least {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		c.mu.Lock()
		if c.undated > 0 {
			t.Errorf("%s: %d writes have no deadline", name, c.undated)
		}
		c.mu.Unlock()
	}
}
