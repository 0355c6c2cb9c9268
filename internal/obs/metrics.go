package obs

import (
	"context"
	"maps"
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Metrics are the server's counters. An increment is an atomic addition, without a lock or an
// allocation. Label values are known beforehand, so that no id, title, path or key is ever shown.
// Safe for concurrent use.
type Metrics struct {
	cfg   MetricsConfig
	began time.Time

	commits, events, started, parked atomic.Int64

	ended, resumes, tools, outcomes *list
	models, tokens                  *table
	boxes                           *histogram

	// requests counts answers by status, for each route's pattern. The map is never written after
	// NewMetrics.
	requests map[string]*list
}

// MetricsConfig configures Metrics.
type MetricsConfig struct {
	Version string
	// Routes are the patterns of the API's routes, such as "GET /v1/sessions"; Tools are the names
	// of the built-in tools.
	Routes, Tools []string
	Now           func() time.Time
}

// State has the values that are looked up when the metrics are read, not counted. A nil or
// negative value is unknown and left out.
type State struct {
	// Sessions are the numbers of sessions by status, Turns of queued and running turns by status,
	// Boxes of boxes by state.
	Sessions, Turns, Boxes map[string]int64
	Unindexed, Readers     int
	// Approvals is the number of pending approvals.
	Approvals          int64
	DiskFree, DiskSize int64
	Ready              bool
}

// NewMetrics returns metrics whose counters are all zero.
func NewMetrics(cfg MetricsConfig) *Metrics {
	providers := bounded("provider", "anthropic", "openai", "scripted")
	m := &Metrics{
		cfg: cfg, began: cfg.Now(),
		ended: newList(label{"status", []string{"completed", "failed", "interrupted"}}),
		// The paths of a resume receipt: fast with a live box, cold from the disk.
		resumes: newList(bounded("path", "fast", "cold")),
		tools:   newList(bounded("tool", cfg.Tools...)),
		outcomes: newList(bounded("outcome", "ok", "exit", "signal", "timeout", "oom", "pids", "error", "canceled",
			"denied", "unknown")),
		models: newTable(providers, bounded("status", "ok", "overloaded", "rate_limit", "api", "invalid",
			"authentication", "cut", "stall", "canceled", "error")),
		tokens:   newTable(providers, label{"kind", []string{"input", "output", "cache_read", "cache_write"}}),
		boxes:    newHistogram(0.02, 0.05, 0.1, 0.25, 1, 5, 30),
		requests: map[string]*list{other: newList(classes())},
	}
	for _, r := range cfg.Routes {
		m.requests[r] = newList(classes())
	}
	return m
}

func classes() label { return bounded("status", "1xx", "2xx", "3xx", "4xx", "5xx") }

// Answered counts an answered request by the pattern of its route and by its status. The pattern is
// empty if no route matched.
func (m *Metrics) Answered(pattern string, status int) {
	l := m.requests[pattern]
	if l == nil {
		l = m.requests[other]
	}
	class := status/100 - 1
	if class < 0 || class > 4 {
		class = len(l.n) - 1
	}
	l.n[class].Add(1)
}

// Committed counts a committed change of a session and its events.
func (m *Metrics) Committed(events int) {
	m.commits.Add(1)
	m.events.Add(int64(events))
}

// Event updates the counters that depend on a committed event. data is the event's payload.
func (m *Metrics) Event(typ holdfast.EventType, data any) {
	switch typ {
	case holdfast.EventTurnStarted:
		m.started.Add(1)
	case holdfast.EventTurnCompleted:
		m.ended.add("completed")
	case holdfast.EventTurnFailed:
		m.ended.add("failed")
	case holdfast.EventTurnInterrupted:
		m.ended.add("interrupted")
	case holdfast.EventToolDenied:
		m.outcomes.add("denied")
	case holdfast.EventToolUnknown:
		m.outcomes.add("unknown")
	}
	switch d := data.(type) {
	case holdfast.Receipt:
		m.resumes.add(d.Path)
	case holdfast.ToolRequested:
		m.tools.add(d.Name)
	case holdfast.ToolFinished:
		m.outcomes.add(string(d.Outcome))
	case holdfast.ModelRequest:
		m.asked(d.Provider, d.Status, d.Usage)
	case holdfast.AssistantMessage:
		// The scripted model has no model.request events, so count its messages.
		if d.Model == "scripted" {
			m.asked("scripted", holdfast.StatusOK, d.Usage)
		}
	case holdfast.BoxStarted:
		m.boxes.observe(d.DurationMS / 1000)
	case holdfast.Notice:
		if d.Code == "model.parked" {
			m.parked.Add(1)
		}
	}
}

func (m *Metrics) asked(provider, status string, u holdfast.Usage) {
	m.models.add(provider, status, 1)
	m.tokens.add(provider, "input", u.InputTokens)
	m.tokens.add(provider, "output", u.OutputTokens)
	m.tokens.add(provider, "cache_read", u.CacheReadTokens)
	m.tokens.add(provider, "cache_write", u.CacheWriteTokens)
}

// Handler returns a handler that answers every request with the metrics. look returns the State.
func (m *Metrics) Handler(look func(ctx context.Context) State) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := m.page(look(r.Context()))
		w.Header().Set("Content-Type", ContentType)
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(text) // ignore the error: the client may have disconnected
	})
}

func (m *Metrics) page(s State) []byte {
	p := &page{}
	p.family("holdfast_build_info", "gauge", "What runs; always 1.")
	p.sample("holdfast_build_info", 1, "version", m.cfg.Version, "go_version", runtime.Version())
	p.gauge("holdfast_uptime_seconds", "How long the server has run.", m.cfg.Now().Sub(m.began).Seconds())
	p.gauge("holdfast_ready", "Whether the server takes work, as /readyz says.", float64(b2i(s.Ready)))
	p.states("holdfast_sessions", "Sessions by status, at most some seconds old.", "status", s.Sessions)
	p.states("holdfast_turns", "Turns that run or wait, at most some seconds old.", "status", s.Turns)
	p.states("holdfast_boxes", "Boxes by state, at most some seconds old.", "state", s.Boxes)

	p.counter("holdfast_turns_started_total", "Turns that began to run.", &m.started)
	p.list("holdfast_turns_ended_total", "Turns that ended.", m.ended)
	p.counter("holdfast_turns_parked_total", "Waits of turns for a provider that asked for more than a minute.", &m.parked)
	p.list("holdfast_resumes_total", "Sessions that were resumed: fast in their box, which lived, or cold.", m.resumes)
	p.table("holdfast_model_requests_total", "Requests to models, by how they ended.", m.models)
	p.table("holdfast_model_tokens_total", "Tokens that models took in and gave.", m.tokens)
	p.list("holdfast_tools_requested_total", "Tool calls that models asked for.", m.tools)
	p.list("holdfast_tools_ended_total", "Tool calls by how they ended.", m.outcomes)
	p.histogram("holdfast_box_start_seconds", "How long boxes took to start; its count is the number of starts.", m.boxes)

	p.counter("holdfast_journal_commits_total", "Changes of sessions that were written.", &m.commits)
	p.counter("holdfast_journal_events_total", "Events that were written.", &m.events)
	p.known("holdfast_search_pending", "Sessions with entries that search does not find yet.", int64(s.Unindexed))
	p.known("holdfast_approvals_pending", "Questions to persons that nobody answered, at most some seconds old.", s.Approvals)
	p.known("holdfast_event_readers", "Readers that follow the log of a session.", int64(s.Readers))
	m.routes(p)
	p.known("holdfast_disk_free_bytes", "Free space on the disk of the data directory.", s.DiskFree)
	p.known("holdfast_disk_size_bytes", "Size of the disk of the data directory.", s.DiskSize)
	p.gauge("holdfast_goroutines", "Goroutines of the server.", float64(runtime.NumGoroutine()))
	p.known("holdfast_heap_bytes", "Memory of the server's live objects and those not yet collected.", heap())
	return p.buf.Bytes()
}

// states writes a gauge metric by one label; nothing if n is nil, which means unknown.
func (p *page) states(name, help, label string, n map[string]int64) {
	if n == nil {
		return
	}
	p.family(name, "gauge", help)
	for _, k := range slices.Sorted(maps.Keys(n)) {
		p.sample(name, float64(n[k]), label, k)
	}
}

// known writes a gauge metric; nothing if n is negative, which means unknown.
func (p *page) known(name, help string, n int64) {
	if n >= 0 {
		p.gauge(name, help, float64(n))
	}
}

func (m *Metrics) routes(p *page) {
	const name = "holdfast_http_requests_total"
	p.family(name, "counter", "Requests that were answered; a stream counts when it ends.")
	for _, pattern := range slices.Sorted(maps.Keys(m.requests)) {
		method, route, ok := strings.Cut(pattern, " ")
		if !ok {
			method, route = other, other
		}
		l := m.requests[pattern]
		for i := range l.n {
			p.sample(name, float64(l.n[i].Load()), "route", route, "method", method, l.name, l.values[i])
		}
	}
}

// heap returns the bytes of heap objects, or -1 if unknown. Reading it does not stop the program.
func heap() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return -1
	}
	return int64(s[0].Value.Uint64())
}
