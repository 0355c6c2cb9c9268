package httpapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestMetricsNeedAToken, and come as their handler writes them.
func TestMetricsNeedAToken(t *testing.T) {
	_, srv := start(t, func(c *Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			_, _ = w.Write([]byte("a 1\n"))
		})
	})
	resp, body := do(t, srv, request{"GET", "/metrics", "", http.Header{"Authorization": nil}})
	wantProblem(t, resp, body, 401, holdfast.KindUnauthenticated)
	resp, body = do(t, srv, request{"GET", "/metrics", "", nil})
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || string(body) != "a 1\n" || ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d %q %s", resp.StatusCode, ct, body)
	}
	for _, path := range []string{"/metrics/", "/metrics/x", "/METRICS"} {
		if resp, _ := do(t, srv, request{"GET", path, "", nil}); resp.StatusCode != 404 {
			t.Errorf("%s is %d", path, resp.StatusCode)
		}
	}
}

// TestAnsweredIsToldPatterns, never what somebody wrote into a path.
func TestAnsweredIsToldPatterns(t *testing.T) {
	var mu sync.Mutex
	got := map[string][]int{}
	_, srv := start(t, func(c *Config) {
		c.Answered = func(pattern string, status int) {
			mu.Lock()
			defer mu.Unlock()
			got[pattern] = append(got[pattern], status)
		}
	})
	for _, r := range []request{
		{"GET", "/v1/sessions", "", nil},
		{"GET", "/v1/sessions/canary", "", nil},
		{"GET", "/v1/sessions", "", http.Header{"Authorization": nil}},
		{"GET", "/canary", "", nil},
		{"GET", "//canary", "", nil},
		{"BREW", "/v1/sessions", "", nil},
	} {
		do(t, srv, r)
	}
	srv.Close() // waits for all requests
	mu.Lock()
	defer mu.Unlock()
	for pattern, statuses := range got {
		if pattern != "" && !slices.Contains(Routes(), pattern) || strings.Contains(pattern, "canary") {
			t.Errorf("%q is told", pattern)
		}
		slices.Sort(statuses)
	}
	if !slices.Equal(got["GET /v1/sessions"], []int{200, 401}) || !slices.Equal(got["GET /v1/sessions/{id}"], []int{400}) || !slices.Equal(got[""], []int{400, 404, 405}) {
		t.Errorf("%v", got)
	}
}

// TestMetricsOfTheirOwn: the listener that needs no token serves the metrics, and
// refuses the rest as the API does.
func TestMetricsOfTheirOwn(t *testing.T) {
	srv := httptest.NewServer(Metrics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a 1\n")) })))
	defer srv.Close()
	if resp, body := do(t, srv, request{"GET", "/metrics", "", nil}); resp.StatusCode != 200 || string(body) != "a 1\n" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, c := range []struct {
		r      request
		status int
		kind   holdfast.Kind
	}{
		{request{"GET", "/", "", nil}, 404, holdfast.KindNotFound},
		{request{"GET", "/healthz", "", nil}, 404, holdfast.KindNotFound},
		{request{"GET", "/v1/sessions", "", nil}, 404, holdfast.KindNotFound},
		{request{"POST", "/metrics", "", nil}, 405, holdfast.KindInvalid},
		{request{"GET", "//metrics", "", nil}, 400, holdfast.KindInvalid},
		{request{"GET", "/metrics?bogus=1", "", nil}, 400, holdfast.KindInvalid},
		{request{"GET", "/metrics", "{", nil}, 400, holdfast.KindInvalid},
	} {
		resp, body := do(t, srv, c.r)
		if p := wantProblem(t, resp, body, c.status, c.kind); p.Hint == "" {
			t.Errorf("%s %s: no hint", c.r.method, c.r.path)
		}
	}
}
