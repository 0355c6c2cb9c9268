package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/egress"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/models"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	theKey  = "sk-the-real-key-of-this-test"
	session = holdfast.SessionID("01931f00-0000-7000-8000-000000000001")
)

// turn is a running turn with a bound on tokens.
type turn struct {
	model string
	bound int64
	done  chan struct{}

	mu       sync.Mutex
	spent    holdfast.Usage
	calls    int
	reserved int
	events   []holdfast.ModelRequest
	fail     error
}

func (t *turn) Traffic(context.Context, holdfast.SessionID) (runtime.Traffic, error) {
	if t == nil {
		return nil, holdfast.Errorf(holdfast.KindDenied, "egress", "no turn is running")
	}
	return t, nil
}
func (t *turn) Session() holdfast.Session { return holdfast.Session{ID: session, Model: t.model} }
func (t *turn) Bounded() bool             { return t.bound > 0 }
func (t *turn) Done() <-chan struct{}     { return t.done }

func (t *turn) Reserve(most holdfast.Usage) (func(holdfast.Usage, bool), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if want := t.spent.InputTokens + t.spent.OutputTokens + most.InputTokens + most.OutputTokens; t.bound > 0 && want > t.bound {
		return nil, holdfast.Errorf(holdfast.KindDenied, "budget", "the turn's budget of tokens is used up").WithHint("raise it")
	}
	t.reserved++
	return func(u holdfast.Usage, answered bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.reserved--
		t.spent = t.spent.Add(u)
		if answered {
			t.calls++
		}
	}, nil
}

func (t *turn) Record(_ context.Context, drafts ...journal.Draft) ([]holdfast.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range drafts {
		t.events = append(t.events, d.Data.(holdfast.ModelRequest))
	}
	return nil, t.fail
}

// recorded are the requests written down so far.
func (t *turn) recorded() []holdfast.ModelRequest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]holdfast.ModelRequest(nil), t.events...)
}

func newTurn(model string) *turn { return &turn{model: model, done: make(chan struct{})} }

type rig struct {
	*testing.T
	b      *egress.Broker
	url    string
	client *http.Client
}

// broker is one in front of an upstream, and a client that reaches it as a box does.
func broker(t *testing.T, turns egress.Turns, url string, tune func(*egress.BrokerConfig)) *rig {
	t.Helper()
	prices, err := models.NewPrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	up := egress.Upstream{URL: url, Key: func() (string, error) { return theKey, nil }, Transport: transport}
	chat := up
	chat.URL += "/v1"
	cfg := egress.BrokerConfig{
		Turns: turns, Now: time.Now,
		Book:      models.New(nil, prices, models.Source{Name: "anthropic", Prefix: "claude-"}, models.Source{Name: "openai"}),
		Upstreams: map[string]egress.Upstream{egress.Anthropic: up, egress.OpenAI: chat},
	}
	if tune != nil {
		tune(&cfg)
	}
	b := egress.NewBroker(context.WithoutCancel(t.Context()), cfg)
	t.Cleanup(func() { _ = b.Close() })
	return &rig{t, b, url, &http.Client{Transport: reaching(t, func(id holdfast.SessionID, c net.Conn) { b.Serve(id, "", c) })}}
}

// reaching is a transport whose connections are handed over as boxd's are.
func reaching(t *testing.T, serve func(holdfast.SessionID, net.Conn)) *http.Transport {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(session, c)
		}
	}()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = l.Close()
		<-done
	})
	return tr
}

func (r *rig) post(path, body string) (int, http.Header, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header = http.Header{
		"X-Api-Key": {"dummy"}, "Authorization": {"Bearer dummy"}, "Anthropic-Version": {"2023-06-01"},
		"Cookie": {"a=b"}, "X-Forwarded-For": {"10.0.0.1"}, "Content-Type": {"application/json"},
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(out)
}

func upstream(t *testing.T) *double.Server {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func message(text string) string {
	raw, _ := json.Marshal(text)
	return fmt.Sprintf(`{"model":"claude-sonnet-4-5","max_tokens":1000,"stream":true,"messages":[{"role":"user","content":%s}]}`, raw)
}

// TestHZ7_TheBrokerAsksWithTheKeyThatTheBoxHasNot: a streamed answer comes through,
// what it used up is settled and recorded, and of the box's headers only those on the
// list went out.
func TestHZ7_TheBrokerAsksWithTheKeyThatTheBoxHasNot(t *testing.T) {
	seen := make(chan http.Header, 1)
	d := upstream(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		d.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	turn := newTurn("anthropic/claude-sonnet-4-5")
	r := broker(t, turn, front.URL, nil)
	status, h, body := r.post("/v1/messages?beta=true", message("hello"))
	if status != 200 || !strings.Contains(body, "message_stop") || !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%d %v %s", status, h, body)
	}
	got := <-seen
	if got.Get("X-Api-Key") != theKey || got.Get("Authorization") != "" || got.Get("Cookie") != "" || got.Get("X-Forwarded-For") != "" {
		t.Errorf("the provider saw %v", got)
	}
	evs := turn.recorded()
	if len(evs) != 1 || evs[0].Status != holdfast.StatusOK || !evs[0].Brokered || evs[0].Usage.InputTokens == 0 ||
		evs[0].Usage.OutputTokens == 0 || evs[0].Usage.CostMicroUSD == 0 || evs[0].RequestID == "" || evs[0].Messages != 1 || evs[0].Sent != "" {
		t.Errorf("recorded %+v", evs)
	}
	if turn.calls != 1 || turn.reserved != 0 || turn.spent != evs[0].Usage {
		t.Errorf("settled %d calls, %d open, %+v", turn.calls, turn.reserved, turn.spent)
	}
	if status, _, body := r.post("/v1/messages/count_tokens", message("hello")); status != 200 || !strings.Contains(body, "input_tokens") {
		t.Errorf("%d %s", status, body)
	}
	<-seen
	if n := len(turn.recorded()); n != 1 {
		t.Errorf("counting is recorded: %d", n)
	}
}

// TestHZ7_NothingIsSpentBetweenTurns.
func TestHZ7_NothingIsSpentBetweenTurns(t *testing.T) {
	d := upstream(t)
	r := broker(t, (*turn)(nil), d.URL(), nil)
	for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"} {
		status, h, body := r.post(path, message("hello"))
		if status != 403 || !strings.Contains(body, "no turn is running") || h.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if n := len(d.Requests()); n != 0 {
		t.Errorf("%d requests went out", n)
	}
	resp, err := r.client.Head("http://localhost/")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
}

// A stream passes event by event: the first is there while the provider still thinks.
func TestStreamsAreNotHeldBack(t *testing.T) {
	more := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: ping\ndata: {\"type\":\"ping\"}\n\n")
		w.(http.Flusher).Flush()
		<-more
		_, _ = io.WriteString(w, "data: {\"type\":\"message_stop\"}\n\n")
	}))
	t.Cleanup(front.Close)
	r := broker(t, newTurn("anthropic/x"), front.URL, nil)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/messages", strings.NewReader(message("x")))
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "event: ping\n" {
		t.Fatalf("%q %v", line, err)
	}
	close(more)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
}

// The scripted model answers within the server, by both APIs, and cuts as it is told.
func TestTheScriptedModelNeedsNoProvider(t *testing.T) {
	turn := newTurn("scripted")
	r := broker(t, turn, "http://127.0.0.1:1", func(cfg *egress.BrokerConfig) {
		h := double.New(double.Config{Record: func(double.Request) error { return nil }})
		cfg.Upstreams[egress.Scripted] = egress.Upstream{URL: "http://scripted.invalid", Transport: egress.InProcess(h)}
	})
	if status, _, body := r.post("/v1/messages", message("hello")); status != 200 || !strings.Contains(body, "You have sent 1 messages") {
		t.Errorf("%d %s", status, body)
	}
	if turn.calls != 1 || len(turn.recorded()) != 0 || turn.spent.OutputTokens == 0 {
		t.Errorf("%d calls, %+v, spent %+v", turn.calls, turn.recorded(), turn.spent)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/messages", strings.NewReader(message(`<script>[{"say":"some text","cut":true}]</script>`)))
	req.Header.Set("Anthropic-Version", "1")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if raw, err := io.ReadAll(resp.Body); err == nil || bytes.Contains(raw, []byte("message_stop")) {
		t.Errorf("cut: %s %v", raw, err)
	}
}

func readAll(r *http.Request) string {
	raw, _ := io.ReadAll(r.Body)
	return string(raw)
}
