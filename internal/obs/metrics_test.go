package obs

import (
	"context"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

func testMetrics() *Metrics {
	at := time.Unix(1000, 0)
	return NewMetrics(MetricsConfig{
		Version: `1.0 "x"`, Routes: []string{"GET /v1/sessions", "POST /v1/sessions"}, Tools: []string{"Bash", "Read"},
		Now: func() time.Time { at = at.Add(time.Second); return at },
	})
}

func unknown() State {
	return State{Unindexed: -1, Approvals: -1, Readers: -1, DiskFree: -1, DiskSize: -1}
}

func mustParse(t *testing.T, m *Metrics, s State) parsed {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(func(context.Context) State { return s }).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if ct := w.Header().Get("Content-Type"); ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	p, err := parse(w.Body.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, w.Body.String())
	}
	return p
}

// secretText stands for what a session holds: none of it may be in a label.
const secretText = "canary \"\\\n text"

func TestMetricsCount(t *testing.T) {
	m := testMetrics()
	for _, e := range []struct {
		typ  holdfast.EventType
		data any
	}{
		{holdfast.EventTurnStarted, holdfast.TurnStartedData{Number: 1}},
		{holdfast.EventTurnCompleted, holdfast.TurnEnded{Result: secretText}},
		{holdfast.EventTurnFailed, holdfast.TurnEnded{}},
		{holdfast.EventTurnInterrupted, holdfast.TurnEnded{}},
		{holdfast.EventToolRequested, holdfast.ToolRequested{Name: "Bash"}},
		{holdfast.EventToolRequested, holdfast.ToolRequested{Name: secretText}},
		{holdfast.EventToolFinished, holdfast.ToolFinished{Outcome: holdfast.ExitOK}},
		{holdfast.EventToolFinished, holdfast.ToolFinished{Outcome: secretText}},
		{holdfast.EventToolDenied, holdfast.ToolDecision{}},
		{holdfast.EventToolUnknown, holdfast.ToolUnknown{}},
		{holdfast.EventModelRequest, holdfast.ModelRequest{Provider: "openai", Status: holdfast.StatusOK, Usage: holdfast.Usage{InputTokens: 3, OutputTokens: 4, CacheReadTokens: 5, CacheWriteTokens: 6}}},
		{holdfast.EventModelRequest, holdfast.ModelRequest{Provider: secretText, Model: secretText, Status: secretText}},
		{holdfast.EventMessageAssistant, holdfast.AssistantMessage{Model: "scripted", Usage: holdfast.Usage{OutputTokens: 7}}},
		{holdfast.EventMessageAssistant, holdfast.AssistantMessage{Model: secretText, Usage: holdfast.Usage{OutputTokens: 70}}},
		{holdfast.EventBoxStarted, holdfast.BoxStarted{DurationMS: 40}},
		{holdfast.EventBoxStarted, holdfast.BoxStarted{DurationMS: 90_000}},
		{holdfast.EventNotice, holdfast.Notice{Code: "model.parked", Text: secretText}},
		{holdfast.EventNotice, holdfast.Notice{Code: "model.retry"}},
		{holdfast.EventSessionResumed, holdfast.Receipt{Path: "fast"}},
	} {
		m.Event(e.typ, e.data)
	}
	m.Committed(2)
	m.Committed(0)
	m.Answered("GET /v1/sessions", 200)
	m.Answered("GET /v1/sessions", 404)
	m.Answered("", 404)
	m.Answered("GET /v1/"+secretText, 0)
	p := mustParse(t, m, State{
		Sessions: map[string]int64{"active": 2, "paused": 0}, Turns: map[string]int64{"running": 1}, Boxes: map[string]int64{"idle": 3},
		Unindexed: 4, Approvals: 8, Readers: 5, DiskFree: 6, DiskSize: 7, Ready: true,
	})
	for series, want := range map[string]float64{
		"holdfast_turns_started_total": 1, `holdfast_turns_ended_total{status="completed"}`: 1, `holdfast_turns_ended_total{status="failed"}`: 1,
		`holdfast_turns_ended_total{status="interrupted"}`: 1, "holdfast_turns_parked_total": 1,
		`holdfast_resumes_total{path="fast"}`: 1, `holdfast_resumes_total{path="cold"}`: 0,
		`holdfast_tools_requested_total{tool="Bash"}`: 1, `holdfast_tools_requested_total{tool="Read"}`: 0, `holdfast_tools_requested_total{tool="other"}`: 1,
		`holdfast_tools_ended_total{outcome="ok"}`: 1, `holdfast_tools_ended_total{outcome="other"}`: 1, `holdfast_tools_ended_total{outcome="denied"}`: 1, `holdfast_tools_ended_total{outcome="unknown"}`: 1,
		`holdfast_model_requests_total{provider="openai",status="ok"}`: 1, `holdfast_model_requests_total{provider="other",status="other"}`: 1,
		`holdfast_model_requests_total{provider="scripted",status="ok"}`: 1, `holdfast_model_tokens_total{provider="openai",kind="input"}`: 3,
		`holdfast_model_tokens_total{provider="openai",kind="cache_write"}`: 6, `holdfast_model_tokens_total{provider="scripted",kind="output"}`: 7,
		`holdfast_model_tokens_total{provider="other",kind="output"}`: 0,
		`holdfast_box_start_seconds_bucket{le="0.02"}`:                0, `holdfast_box_start_seconds_bucket{le="0.05"}`: 1, `holdfast_box_start_seconds_bucket{le="+Inf"}`: 2,
		"holdfast_box_start_seconds_sum": 90.04, "holdfast_box_start_seconds_count": 2,
		"holdfast_journal_commits_total": 2, "holdfast_journal_events_total": 2,
		`holdfast_http_requests_total{route="/v1/sessions",method="GET",status="2xx"}`: 1, `holdfast_http_requests_total{route="/v1/sessions",method="POST",status="2xx"}`: 0,
		`holdfast_http_requests_total{route="other",method="other",status="4xx"}`: 1, `holdfast_http_requests_total{route="other",method="other",status="other"}`: 1,
		`holdfast_sessions{status="active"}`: 2, `holdfast_turns{status="running"}`: 1, `holdfast_boxes{state="idle"}`: 3,
		"holdfast_search_pending": 4, "holdfast_approvals_pending": 8, "holdfast_event_readers": 5, "holdfast_disk_free_bytes": 6, "holdfast_disk_size_bytes": 7, "holdfast_ready": 1,
		"holdfast_uptime_seconds": 1,
	} {
		if got, ok := p.values[series]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", series, got, ok, want)
		}
	}
	if p.values["holdfast_goroutines"] < 1 || p.values["holdfast_heap_bytes"] < 1000 {
		t.Errorf("%v goroutines, %v bytes", p.values["holdfast_goroutines"], p.values["holdfast_heap_bytes"])
	}
	for _, l := range p.labels {
		if strings.Contains(l, "canary") {
			t.Errorf("a label is %q", l)
		}
	}
}

// TestMetricsLeaveOutWhatIsNotKnown rather than say 0, and tell all else.
func TestMetricsLeaveOutWhatIsNotKnown(t *testing.T) {
	p := mustParse(t, testMetrics(), unknown())
	for _, name := range []string{"sessions", "turns", "boxes", "search_pending", "event_readers", "disk_free_bytes", "disk_size_bytes"} {
		if p.kinds["holdfast_"+name] != "" {
			t.Errorf("%s is told", name)
		}
	}
	if v, ok := p.values["holdfast_ready"]; !ok || v != 0 {
		t.Errorf("ready is %v", v)
	}
}

// TestMetricsKeepTheirOrder: two pages differ in numbers only.
func TestMetricsKeepTheirOrder(t *testing.T) {
	m := testMetrics()
	names := func() string {
		var out strings.Builder
		for line := range strings.Lines(string(m.page(unknown()))) {
			out.WriteString(line[:strings.LastIndexByte(line, ' ')] + "\n")
		}
		return out.String()
	}
	first := names()
	m.Answered("POST /v1/sessions", 201)
	m.Event(holdfast.EventToolRequested, holdfast.ToolRequested{Name: "new"})
	if again := names(); again != first {
		t.Errorf("%s\nthen\n%s", first, again)
	}
}

// TestCountingTakesNoMemory: it is on the way of every commit and request.
func TestCountingTakesNoMemory(t *testing.T) {
	m := testMetrics()
	events := []struct {
		typ  holdfast.EventType
		data any
	}{
		{holdfast.EventToolRequested, holdfast.ToolRequested{Name: "Bash"}},
		{holdfast.EventToolFinished, holdfast.ToolFinished{Outcome: holdfast.ExitOK}},
		{holdfast.EventModelRequest, holdfast.ModelRequest{Provider: "anthropic", Status: holdfast.StatusOK}},
		{holdfast.EventTurnCompleted, holdfast.TurnEnded{}},
		{holdfast.EventBoxStarted, holdfast.BoxStarted{DurationMS: 40}},
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, e := range events {
			m.Event(e.typ, e.data)
		}
		m.Committed(1)
		m.Answered("GET /v1/sessions", 200)
		m.Answered("", 200)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzLabelEscaping(f *testing.F) {
	for _, s := range []string{"", "a", `"`, `\`, "\n", `\n`, `\"`, "},x=\"", "\xff", "é", "\r", "# HELP x y", `",evil="1`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := &page{}
		p.family("m", "gauge", "a "+strings.ToValidUTF8(s, "?"))
		p.sample("m", 1, "a", s, "b", "end")
		got, err := parse(p.buf.String())
		if err != nil {
			t.Fatalf("%v of %q", err, p.buf.String())
		}
		if !utf8.ValidString(s) {
			s = strings.ToValidUTF8(s, "\uFFFD")
		}
		if len(got.labels) != 2 || got.labels[0] != s || got.labels[1] != "end" || len(got.values) != 1 {
			t.Errorf("%q came back as %q", s, got.labels)
		}
	})
}

// TestHZ24_CountersNeverFall: a model may report any number of tokens.
func TestHZ24_CountersNeverFall(t *testing.T) {
	m := testMetrics()
	last := 0.0
	for _, n := range []int64{7, -1000, math.MaxInt64, math.MaxInt64, math.MinInt64} {
		m.Event(holdfast.EventModelRequest, holdfast.ModelRequest{Provider: "openai", Status: holdfast.StatusOK, Usage: holdfast.Usage{OutputTokens: n}})
		got, ok := mustParse(t, m, unknown()).values[`holdfast_model_tokens_total{provider="openai",kind="output"}`]
		if !ok || got < last || got < 7 {
			t.Errorf("after %d: %g, before it %g", n, got, last)
		}
		last = got
	}
}
