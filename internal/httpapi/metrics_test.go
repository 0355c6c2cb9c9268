package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestMetricsNeedAToken, and come as their handler writes them.
func TestMetricsNeedAToken(t *testing.T) {
	_, srv := start(t, func(c *Config) {
		c.Self.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
		c.Self.Answered = func(pattern string, status int) {
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
