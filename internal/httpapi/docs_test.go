package httpapi

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestOpenAPIIsGolden(t *testing.T) {
	_, srv := start(t, nil)
	resp, spec := do(t, srv, request{"GET", "/openapi.json", "", nil})
	if ct := resp.Header.Get("Content-Type"); ct != "application/openapi+json" {
		t.Errorf("content type %q", ct)
	}
	name := filepath.Join("..", "..", "docs", "openapi.json")
	if *update {
		if err := os.WriteFile(name, spec, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(spec) != string(want) {
		t.Error("the OpenAPI document changed: look at the difference, then run go test ./internal/httpapi -run OpenAPI -update")
	}
}

// TestOpenAPIIsCompleteAgainstTheRouter asks the router for every operation of
// the document, and the document for every route of the contract.
func TestOpenAPIIsCompleteAgainstTheRouter(t *testing.T) {
	a := New(newFake().config())
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string           `json:"operationId"`
			Summary     string           `json:"summary"`
			Responses   map[string]any   `json:"responses"`
			Security    []map[string]any `json:"security"`
		}
	}
	if err := json.Unmarshal(a.Spec(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %q", doc.OpenAPI)
	}
	if strings.Contains(string(a.Spec()), "$schema") || strings.Contains(string(a.Spec()), "...}") {
		t.Error("the document holds $schema links or router wildcards")
	}
	param := regexp.MustCompile(`\{[^}]+\}`)
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if ids[op.OperationID] || op.OperationID == "" || op.Summary == "" {
				t.Errorf("%s %s: operation id %q, summary %q", method, path, op.OperationID, op.Summary)
			}
			ids[op.OperationID] = true
			if op.Responses["default"] == nil {
				t.Errorf("%s %s: no problem document", method, path)
			}
			if (len(op.Security) == 0) != (!strings.HasPrefix(path, "/v1/") && path != "/metrics") {
				t.Errorf("%s %s: security %v", method, path, op.Security)
			}
			r, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), "http://localhost"+param.ReplaceAllString(path, "x"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, pattern := a.mux.Handler(r); pattern == "" {
				t.Errorf("%s %s has no route", method, path)
			}
		}
	}
	for _, route := range strings.Split(`get /v1/agents,post /v1/agents,get /v1/agents/{name},delete /v1/agents/{name},get /v1/agents/{name}/versions,`+
		`get /v1/sessions,post /v1/sessions,get /v1/sessions/{id},patch /v1/sessions/{id},delete /v1/sessions/{id},`+
		`post /v1/sessions/{id}/pause,post /v1/sessions/{id}/resume,post /v1/sessions/{id}/end,post /v1/sessions/{id}/untrash,post /v1/sessions/{id}/interrupt,`+
		`get /v1/sessions/{id}/checkpoints,post /v1/sessions/{id}/checkpoints/{checkpoint}/hold,delete /v1/sessions/{id}/checkpoints/{checkpoint}/hold,post /v1/sessions/{id}/rewind,post /v1/sessions/{id}/fork,post /v1/sessions/{id}/restore,get /v1/sessions/{id}/diff,`+
		`post /v1/sessions/{id}/turns,get /v1/sessions/{id}/turns,get /v1/sessions/{id}/turns/{turn},get /v1/sessions/{id}/events,`+
		`get /v1/sessions/{id}/transcript,get /v1/sessions/{id}/usage,get /v1/sessions/{id}/files,get /v1/sessions/{id}/files/{path},put /v1/sessions/{id}/files/{path},`+
		`delete /v1/sessions/{id}/files/{path},post /v1/sessions/{id}/exec,get /v1/sessions/{id}/terminal,get /v1/sessions/{id}/editor,get /v1/containers,`+
		`post /v1/containers/stop,get /v1/snapshots,post /v1/snapshots/collect,post /v1/snapshots/verify,get /v1/search,get /healthz,get /readyz,get /metrics`, ",") {
		method, path, _ := strings.Cut(route, " ")
		if _, ok := doc.Paths[path][method]; !ok {
			t.Errorf("%s is not in the document", route)
		}
	}
}

func TestDocsPageIsSelfContained(t *testing.T) {
	_, srv := start(t, nil)
	resp, body := do(t, srv, request{"GET", "/docs", "", nil})
	page := string(body)
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v", resp.Header)
	}
	for _, bad := range []string{"<script", "src=", "http://", "https://", "@import"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for _, want := range []string{"/v1/sessions/{id}/turns", "Idempotency-Key", "Send a message", "/openapi.json", "curl -X PATCH", "write hello.txt", "string of queue, steer, interrupt", "at most 3600000"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
}

// TestABrowserIsSentToTheDocs: other clients are told that there is nothing.
//
// FH-45.
func TestABrowserIsSentToTheDocs(t *testing.T) {
	_, srv := start(t, nil)
	srv.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, _ := do(t, srv, request{"GET", "/", "", http.Header{"Authorization": nil, "Accept": {"text/html,application/xhtml+xml"}}})
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/docs" {
		t.Errorf("a browser: %d %v", resp.StatusCode, resp.Header)
	}
	resp, body := do(t, srv, request{"GET", "/", "", http.Header{"Authorization": nil}})
	if p := decode[holdfast.Problem](t, body); resp.StatusCode != 404 || p.Kind != holdfast.KindNotFound {
		t.Errorf("another client: %d %s", resp.StatusCode, body)
	}
}

// TestDocsPageHasEveryOperation: each stands below a heading, with the headers of
// its answers in the document.
func TestDocsPageHasEveryOperation(t *testing.T) {
	a := New(newFake().config())
	page, doc := string(a.doc.Page), a.huma.OpenAPI()
	for pattern, op := range spec.Operations(doc) {
		_, path, _ := strings.Cut(pattern, " ")
		line := `<span class="m">` + op.Method + `</span>` + path + `</code>`
		if n := strings.Count(page, line); n != 1 {
			t.Errorf("%s (tags %v) stands in the page %d times", pattern, op.Tags, n)
		}
		for status, r := range op.Responses {
			if status != "default" && (r.Headers[problem.RequestID] == nil || rules[pattern].HonoursKey != (r.Headers[spec.Replayed] != nil)) {
				t.Errorf("%s: %s has the headers %v", pattern, status, r.Headers)
			}
		}
	}
	for name := range doc.Components.Responses["Problem"].Headers {
		if doc.Components.Headers[name] == nil {
			t.Errorf("%s is described nowhere", name)
		}
	}
	if doc.Components.Responses["Problem"].Headers["Retry-After"] == nil {
		t.Error("problems do not say Retry-After")
	}
}

func TestDownloadsAreNeverRendered(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	f.files["evil.html"] = []byte("<script>alert(1)</script>")
	f.files["a\"b\r\nX: y"] = []byte("x")
	for path, name := range map[string]string{"evil.html": "evil.html", "a%22b%0D%0AX:%20y": ""} {
		resp, body := do(t, srv, request{"GET", "/v1/sessions/" + string(id) + "/files/" + path, "", nil})
		h := resp.Header
		if resp.StatusCode != 200 || len(body) == 0 || h.Get("Content-Type") != "application/octet-stream" ||
			!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || !strings.Contains(h.Get("Content-Disposition"), name) ||
			h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("X") != "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, h)
		}
	}
	resp, body := do(t, srv, request{"GET", "/v1/sessions/" + string(id) + "/files/missing", "", nil})
	wantProblem(t, resp, body, 404, holdfast.KindNotFound)
}

func TestUploadsAreBounded(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Bounds.File = 10 })
	id := createOne(t, srv)
	url := "/v1/sessions/" + string(id) + "/files/a"
	resp, body := do(t, srv, request{"PUT", url + "?mode=0755", strings.Repeat("x", 10), nil})
	if resp.StatusCode != 200 || !strings.Contains(string(body), `"mode":493`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	resp, body = do(t, srv, request{"PUT", url, strings.Repeat("y", 11), nil})
	wantProblem(t, resp, body, 413, holdfast.KindTooLarge)
	if string(f.files["a"]) != strings.Repeat("x", 10) {
		t.Errorf("the file is %q now", f.files["a"])
	}
}

func TestReadyz(t *testing.T) {
	f, srv := start(t, nil)
	f.health.ReadOnly = "no space left"
	resp, body := do(t, srv, request{"GET", "/readyz", "", nil})
	if p := wantProblem(t, resp, body, 503, holdfast.KindUnavailable); !strings.Contains(p.Detail, "no space left") {
		t.Errorf("%+v", p)
	}
	if resp, _ := do(t, srv, request{"GET", "/healthz", "", nil}); resp.StatusCode != 200 {
		t.Errorf("healthz: %d", resp.StatusCode)
	}
	f.health = holdfast.Health{Status: "draining", RunningTurns: 3}
	resp, body = do(t, srv, request{"GET", "/readyz", "", nil})
	if p := wantProblem(t, resp, body, 503, holdfast.KindUnavailable); !strings.Contains(p.Detail, "draining: 3 ") {
		t.Errorf("%+v", p)
	}
	a := New(newFake().config())
	a.Stop()
	w := &recorder{head: http.Header{}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.ServeHTTP(w, r); !strings.Contains(w.String(), "stopping") {
		t.Errorf("while stopping: %s", w.String())
	}
}
