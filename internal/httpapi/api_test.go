package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

type request struct {
	method, path, body string
	header             http.Header
}

// do sends a request with the token.
func do(t testing.TB, srv *httptest.Server, r request) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, srv.URL+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range r.header {
		req.Header[k] = v
		if k == "Host" {
			req.Host = v[0]
		}
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

func decode[T any](t testing.TB, body []byte) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return v
}

// wantProblem checks that an answer is a problem document and returns it.
func wantProblem(t testing.TB, resp *http.Response, body []byte, status int, kind holdfast.Kind) holdfast.Problem {
	t.Helper()
	if ct := resp.Header.Get("Content-Type"); ct != problem.MediaType {
		t.Errorf("content type %q of %s", ct, body)
	}
	p := decode[holdfast.Problem](t, body)
	if resp.StatusCode != status || p.Status != status || p.Kind != kind {
		t.Errorf("status %d, problem %+v; want %d %s", resp.StatusCode, p, status, kind)
	}
	if p.Type != "urn:holdfast:problem:"+string(kind) || p.Title == "" || p.Detail == "" {
		t.Errorf("incomplete problem %+v", p)
	}
	return p
}

func createOne(t testing.TB, srv *httptest.Server) holdfast.SessionID {
	t.Helper()
	resp, body := do(t, srv, request{"POST", "/v1/sessions", `{"title":"one"}`, nil})
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return decode[sessionBody](t, body).Session.ID
}

func TestSessionRoutes(t *testing.T) {
	f, srv := start(t, nil)
	resp, body := do(t, srv, request{"POST", "/v1/sessions", `{"title":"one","tags":["a"],"env":{"K":"v"}}`, http.Header{"Idempotency-Key": {"k1"}}})
	s := decode[sessionBody](t, body).Session
	if resp.StatusCode != 201 || s.Title != "one" || resp.Header.Get("Location") != "/v1/sessions/"+string(s.ID) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	one := "/v1/sessions/" + string(s.ID)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               holdfast.Status
	}{
		{"GET", one, "", 200, holdfast.StatusActive},
		{"PATCH", one, `{"title":"two"}`, 200, holdfast.StatusActive},
		{"POST", one + "/pause", "", 200, holdfast.StatusPaused},
		{"POST", one + "/pause", `{"interrupt":true,"reason":"r"}`, 200, holdfast.StatusPaused},
		{"POST", one + "/interrupt", "", 200, holdfast.StatusPaused},
		{"POST", one + "/end", `{}`, 200, holdfast.StatusEnded},
	} {
		resp, body := do(t, srv, request{c.method, c.path, c.body, nil})
		if got := decode[sessionBody](t, body).Session; resp.StatusCode != c.status || got.Status != c.want || got.ID != s.ID {
			t.Errorf("%s %s: %d %s", c.method, c.path, resp.StatusCode, body)
		}
	}
	resp, body = do(t, srv, request{"POST", one + "/resume", `{"fresh":true,"dry_run":true}`, nil})
	if r := decode[holdfast.Resumed](t, body); resp.StatusCode != 200 || r.Receipt.Tier != holdfast.TierLive {
		t.Errorf("resume: %d %s", resp.StatusCode, body)
	}
	do(t, srv, request{"GET", "/v1/sessions?status=active&agent=a&tag=t&text=x&q=y&name=01&cursor=c&limit=7", "", nil})
	want := holdfast.SessionFilter{Status: "active", Agent: "a", Tag: "t", Text: "x", Query: "y", Name: "01", Cursor: "c", Limit: 7}
	if f.last != want {
		t.Errorf("list asked for %+v", f.last)
	}
	resp, body = do(t, srv, request{"GET", "/v1/search?q=a+%22b+c%22&session=s&cursor=c&limit=7", "", nil})
	if page := decode[holdfast.SearchPage](t, body); resp.StatusCode != 200 || len(page.Hits) != 1 || page.Pending != 1 ||
		f.last != (holdfast.SearchRequest{Query: `a "b c"`, Session: "s", Cursor: "c", Limit: 7}) {
		t.Errorf("search: %d %s, %+v", resp.StatusCode, body, f.last)
	}
	for _, c := range []request{{"DELETE", one + "?interrupt=true&purge=true", "", nil}, {"DELETE", "/v1/sessions/" + string(createOne(t, srv)), `{"interrupt":true,"purge":true}`, nil}} {
		resp, body := do(t, srv, c)
		if f.last != (holdfast.EndSession{Interrupt: true, Purge: true}) || resp.StatusCode != 204 || len(body) != 0 {
			t.Errorf("delete: %d %s, %+v", resp.StatusCode, body, f.last)
		}
	}
	resp, body = do(t, srv, request{"GET", one, "", nil})
	wantProblem(t, resp, body, 404, holdfast.KindNotFound)
}
