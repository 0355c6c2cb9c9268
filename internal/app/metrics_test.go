package app_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// logbook is a log that can be read while it is written.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func fetch(t *testing.T, method, url, token string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// value is a sample of a page; obs tests the format itself.
func value(t *testing.T, page, series string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+page, "\n"+series+" ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(line, 64)
	if !ok || err != nil {
		t.Errorf("%s is not told: %q", series, line)
	}
	return n
}

// TestMetricsOfAServer: what a turn does moves the counters, on both listeners; that
// of the API asks for a token, the other has nothing else to give.
func TestMetricsOfAServer(t *testing.T) {
	cfg := settings(t, "mem")
	cfg.MetricsListen = "127.0.0.1:0"
	var log logbook
	c, addr, stop := serveLogged(t, cfg, &log)
	found := regexp.MustCompile(`url=(http://127\.0\.0\.1:\d+)/metrics`).FindStringSubmatch(log.String())
	if found == nil {
		t.Fatalf("the log does not say where the metrics are: %s", log.String())
	}
	own, api := found[1], "http://"+addr
	_, before := fetch(t, "GET", own+"/metrics", "")
	const title = "a title that nobody else is told"
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Title: title, Tags: []string{"a-tag"}}, "a-key")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"true"}},{"tool":"Bash","input":{"command":"exit 3"}},{"tool":"Nonsense","input":{}},{"say":"done"}]</script>`)
	resp, after := fetch(t, "GET", own+"/metrics", "")
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d %s", resp.StatusCode, ct)
	}
	for series, moved := range map[string]float64{
		"holdfast_turns_started_total": 1, `holdfast_turns_ended_total{status="completed"}`: 1, `holdfast_turns_ended_total{status="failed"}`: 0,
		`holdfast_tools_requested_total{tool="Bash"}`: 2, `holdfast_tools_requested_total{tool="other"}`: 1,
		`holdfast_tools_ended_total{outcome="ok"}`: 1, `holdfast_tools_ended_total{outcome="exit"}`: 1,
		"holdfast_box_start_seconds_count": 1, `holdfast_model_requests_total{provider="scripted",status="ok"}`: 4,
		`holdfast_http_requests_total{route="/v1/sessions",method="POST",status="2xx"}`: 1,
	} {
		if got := value(t, after, series) - value(t, before, series); got != moved {
			t.Errorf("%s moved by %v, want %v", series, got, moved)
		}
	}
	for _, series := range []string{"holdfast_journal_commits_total", "holdfast_journal_events_total", `holdfast_model_tokens_total{provider="scripted",kind="output"}`} {
		if value(t, after, series) <= value(t, before, series) {
			t.Errorf("%s did not move", series)
		}
	}
	if value(t, after, "holdfast_ready") != 1 || value(t, after, "holdfast_disk_free_bytes") <= 0 || value(t, after, `holdfast_boxes{state="idle"}`) != 1 {
		t.Errorf("%s", after)
	}
	secret, err := os.ReadFile(filepath.Join(cfg.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(secret))
	for _, s := range []string{title, string(ses.ID), "a-tag", "a-key", cfg.Data, "Nonsense", token} {
		if strings.Contains(after, s) {
			t.Errorf("the metrics hold %q", s)
		}
	}

	if resp, _ := fetch(t, "GET", api+"/metrics", ""); resp.StatusCode != 401 {
		t.Errorf("without a token the API answers %d", resp.StatusCode)
	}
	if resp, body := fetch(t, "GET", api+"/metrics", token); resp.StatusCode != 200 || value(t, body, "holdfast_turns_started_total") != 1 {
		t.Errorf("with a token the API answers %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/", "/healthz", "/v1/sessions", "/metrics/", "/debug/pprof/", "/openapi.json"} {
		if resp, _ := fetch(t, "GET", own+path, token); resp.StatusCode != 404 {
			t.Errorf("%s of the metrics' listener is %d", path, resp.StatusCode)
		}
	}
	if resp, _ := fetch(t, "POST", own+"/metrics", token); resp.StatusCode != 405 {
		t.Errorf("a POST to the metrics' listener is %d", resp.StatusCode)
	}
	stop()
	if !strings.Contains(log.String(), "metrics are served") || strings.Contains(log.String(), "listener of the metrics ended") {
		t.Errorf("the log: %s", log.String())
	}
}

// TestMetricsCountSessions as they are when the server starts.
func TestMetricsCountSessions(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	for range 3 {
		if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	_, addr, _ := serveAt(t, cfg)
	token, err := os.ReadFile(filepath.Join(cfg.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	_, page := fetch(t, "GET", "http://"+addr+"/metrics", strings.TrimSpace(string(token)))
	if a, p := value(t, page, `holdfast_sessions{status="active"}`), value(t, page, `holdfast_sessions{status="paused"}`); a != 3 || p != 0 {
		t.Errorf("%v active, %v paused", a, p)
	}
	if value(t, page, `holdfast_turns{status="queued"}`) != 0 || value(t, page, `holdfast_turns{status="running"}`) != 0 {
		t.Error("turns are open")
	}
}
