package httpapi

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// logged is a log that a test reads.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines are the entries with a message.
func (l *logged) lines(t *testing.T, msg string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range strings.SplitSeq(strings.TrimSpace(l.buf.String()), "\n") {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == msg {
			out = append(out, m)
		}
	}
	return out
}

// TestRequestsHaveNames: each answer carries an id, the caller's own where it is
// fit for a log, and so do problems and every line of the log.
func TestRequestsHaveNames(t *testing.T) {
	log := &logged{}
	f, srv := start(t, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	id := createOne(t, srv)
	one := "/v1/sessions/" + string(id)
	resp, _ := do(t, srv, request{"GET", one, "", http.Header{problem.RequestID: {"mine-1"}}})
	if got := resp.Header.Get(problem.RequestID); got != "mine-1" {
		t.Errorf("the caller's id came back as %q", got)
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "a b", "x\u00e9", strings.Repeat("x", 65), `"`, "a;b"} {
		resp, _ := do(t, srv, request{"GET", one, "", http.Header{problem.RequestID: {bad}}})
		got := resp.Header.Get(problem.RequestID)
		if got == bad || len(got) != 36 || seen[got] {
			t.Errorf("%q became %q", bad, got)
		}
		seen[got] = true
	}
	made, _ := do(t, srv, request{"POST", "/v1/sessions", "{}", http.Header{problem.RequestID: {"made"}}})
	if f.request != "made" {
		t.Errorf("what the request starts is of the request %q", f.request)
	}
	f.fail = holdfast.Errorf(holdfast.KindInternal, "x", "broken inside")
	for name, r := range map[string]request{
		"a handler":     {"POST", one + "/pause", "{}", http.Header{problem.RequestID: {"a-handler"}}},
		"no such route": {"GET", "/nowhere", "", http.Header{problem.RequestID: {"no-route"}}},
		"no token":      {"GET", one, "", http.Header{problem.RequestID: {"no-token"}, "Authorization": {""}}},
		"a bad body":    {"PATCH", one, `{"titel":"x"}`, http.Header{problem.RequestID: {"bad-body"}}},
		"a wrong type":  {"PATCH", one, `title=x`, http.Header{problem.RequestID: {"bad-type"}, "Content-Type": {"text/plain"}}},
		"no method":     {"PUT", one, "", http.Header{problem.RequestID: {"no-method"}}},
	} {
		resp, body := do(t, srv, r)
		p := decode[holdfast.Problem](t, body)
		if want := r.header.Get(problem.RequestID); p.RequestID != want || resp.Header.Get(problem.RequestID) != want || p.Kind == "" ||
			resp.Header.Get("Content-Type") != problem.MediaType {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	failed := log.lines(t, "request failed")
	if len(failed) != 1 || failed[0]["request_id"] != "a-handler" || failed[0]["session_id"] != string(id) ||
		!strings.Contains(failed[0]["error"].(string), "broken inside") {
		t.Errorf("failures in the log: %v", failed)
	}
	answered := log.lines(t, "request")
	if len(answered) < 14 {
		t.Fatalf("%d requests in the log", len(answered))
	}
	for _, m := range answered {
		if m["request_id"] == "made" && m["session_id"] != strings.TrimPrefix(made.Header.Get("Location"), "/v1/sessions/") {
			t.Errorf("%v made %s", m, made.Header.Get("Location"))
		}
		if m["request_id"] == "" || m["status"] == 0.0 || strings.HasPrefix(m["path"].(string), one) && m["session_id"] != string(id) {
			t.Errorf("%v", m)
		}
	}
}

// TestPanicIsToldOnce, with the id of its request, which the caller has too.
func TestPanicIsToldOnce(t *testing.T) {
	log := &logged{}
	_, srv := start(t, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(log, nil))
		c.Agents = nil // a nil interface is called
	})
	resp, body := do(t, srv, request{"GET", "/v1/agents", "", http.Header{problem.RequestID: {"boom"}}})
	p := wantProblem(t, resp, body, 500, holdfast.KindInternal)
	if p.RequestID != "boom" || strings.Contains(string(body), "nil pointer") {
		t.Errorf("%s", body)
	}
	lines := log.lines(t, "the handler of a request panicked")
	if len(lines) != 1 || lines[0]["request_id"] != "boom" || lines[0]["stack"] == "" || len(log.lines(t, "request failed")) != 0 {
		t.Errorf("%v", lines)
	}
	if resp, _ := do(t, srv, request{"GET", "/healthz", "", nil}); resp.StatusCode != 200 {
		t.Errorf("the server answers %d", resp.StatusCode)
	}
}
