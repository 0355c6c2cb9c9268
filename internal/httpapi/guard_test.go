package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

func TestEveryRefusalOfTheRouterIsAProblem(t *testing.T) {
	_, srv := start(t, nil)
	id := string(createOne(t, srv))
	for _, c := range []struct {
		method, path string
		status       int
		kind         holdfast.Kind
		want         string
	}{
		{"GET", "/", 404, holdfast.KindNotFound, `"/"`},
		{"GET", "/v1/nothing", 404, holdfast.KindNotFound, "/v1/nothing"},
		{"GET", "/v1", 404, holdfast.KindNotFound, `"/v1"`},
		{"GET", "/v1/sessions/", 404, holdfast.KindNotFound, "/v1/sessions/"},
		{"GET", "/favicon.ico", 404, holdfast.KindNotFound, "favicon"},
		{"PUT", "/v1/sessions", 405, holdfast.KindInvalid, `"PUT"`},
		{"POST", "/v1/sessions/" + id, 405, holdfast.KindInvalid, `"POST"`},
		{"DELETE", "/healthz", 405, holdfast.KindInvalid, `"DELETE"`},
		{"BREW", "/v1/agents", 405, holdfast.KindInvalid, `"BREW"`},
		{"GET", "//v1/sessions", 400, holdfast.KindInvalid, "contains //, /./ or /../"},
		{"GET", "/v1/../v1/sessions", 400, holdfast.KindInvalid, "contains //, /./ or /../"},
		{"GET", "/v1/./sessions", 400, holdfast.KindInvalid, "contains //, /./ or /../"},
		{"GET", "/v1/sessions/" + id + "/files//etc/passwd", 400, holdfast.KindInvalid, "%2F"},
		{"GET", "/v1/sessions/nope", 400, holdfast.KindInvalid, `"nope"`},
		{"GET", "/v1/sessions/" + id + "/turns/nope", 400, holdfast.KindInvalid, `"nope"`},
		{"GET", "/v1/agents/UPPER", 400, holdfast.KindInvalid, `"UPPER"`},
		{"POST", "/v1/agents", 400, holdfast.KindInvalid, "query.name"},
		{"PUT", "/v1/sessions/" + id + "/files/", 400, holdfast.KindInvalid, "not of a file"},
		{"DELETE", "/v1/sessions/" + id + "/files/a/", 400, holdfast.KindInvalid, `"a/"`},
		{"PUT", "/v1/sessions/" + id + "/files/a?mode=999", 400, holdfast.KindInvalid, `"999"`},
		{"PUT", "/v1/sessions/" + id + "/files/a?mode=4755", 400, holdfast.KindInvalid, `"4755"`},
		{"GET", "/v1/sessions/" + id + "/terminal", 400, holdfast.KindInvalid, "WebSocket"},
		{"DELETE", "/v1/sessions/" + id + "?interrupt=maybe", 400, holdfast.KindInvalid, `"maybe"`},
	} {
		resp, body := do(t, srv, request{c.method, c.path, "", nil})
		p := wantProblem(t, resp, body, c.status, c.kind)
		if !strings.Contains(p.Detail+p.Hint, c.want) || p.Hint == "" {
			t.Errorf("%s %s: %+v does not say %q", c.method, c.path, p, c.want)
		}
		if c.status == 405 && resp.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
}

func TestBadBodiesAreProblemsThatNameFieldAndValue(t *testing.T) {
	f, srv := start(t, nil)
	one := "/v1/sessions/" + string(createOne(t, srv))
	long := `{"title":"` + strings.Repeat("x", body.Small) + `"}`
	for _, c := range []struct {
		path, body string
		status     int
		kind       holdfast.Kind
		want       []string
	}{
		{"/v1/sessions", `{`, 400, holdfast.KindInvalid, []string{"body", "ends early"}},
		{"/v1/sessions", `{"title":"a"} x`, 400, holdfast.KindInvalid, []string{"after the JSON value"}},
		{"/v1/sessions", `{"title":"a"}{}`, 400, holdfast.KindInvalid, []string{"after the JSON value"}},
		{"/v1/sessions", `nope`, 400, holdfast.KindInvalid, []string{"body", "invalid character"}},
		{"/v1/sessions", `[]`, 400, holdfast.KindInvalid, []string{"body", "expected object"}},
		{"/v1/sessions", `null`, 400, holdfast.KindInvalid, []string{"body"}},
		{"/v1/sessions", `{"trust":5}`, 400, holdfast.KindInvalid, []string{"body.trust", "expected string", "got 5"}},
		{"/v1/sessions", `{"tags":["a",{"b":1}]}`, 400, holdfast.KindInvalid, []string{"body.tags[1]", "expected string"}},
		{"/v1/sessions", `{"env":{"A":1}}`, 400, holdfast.KindInvalid, []string{"body.env.A", "expected string"}},
		{"/v1/sessions", `{"bogus":"v\u001b[31m"}`, 400, holdfast.KindInvalid, []string{"body.bogus", "unexpected property"}},
		{"/v1/sessions", `{"b\u001b":"v"}`, 400, holdfast.KindInvalid, []string{`body.b\x1b`, "unexpected property"}},
		{"/v1/sessions", `{"budget":{"bogus":1}}`, 400, holdfast.KindInvalid, []string{"body.budget.bogus", "unexpected property"}},
		{"/v1/sessions", `{"budget":{"turns":1,"turns":2}}`, 400, holdfast.KindInvalid, []string{`key "turns" occurs twice`}},
		{"/v1/sessions", `{"budget":{"turns":"many"}}`, 400, holdfast.KindInvalid, []string{"body.budget.turns", `got "many"`}},
		{"/v1/sessions", `{"budget":null}`, 400, holdfast.KindInvalid, []string{"body.budget", "expected object"}},
		{"/v1/sessions", `{"title":null}`, 400, holdfast.KindInvalid, []string{"body.title", "expected string"}},
		{"/v1/sessions", `{"trust":null}`, 400, holdfast.KindInvalid, []string{"body.trust", "got null"}},
		{"/v1/sessions", `{"network":null}`, 400, holdfast.KindInvalid, []string{"body.network", "expected array"}},
		{"/v1/sessions", `{"Title":"a"}`, 400, holdfast.KindInvalid, []string{"body.Title", "unexpected property"}},
		{"/v1/sessions", `{"title":"a","title":"b"}`, 400, holdfast.KindInvalid, []string{`key "title" occurs twice`}},
		{"/v1/sessions", `{"env":{"A":"1","A":"2"}}`, 400, holdfast.KindInvalid, []string{`key "A" occurs twice`}},
		{"/v1/sessions", "{\"title\":\"\xff\"}", 400, holdfast.KindInvalid, []string{"UTF-8"}},
		{"/v1/sessions", `{"title":"\ud83d"}`, 400, holdfast.KindInvalid, []string{"surrogate"}},
		{"/v1/sessions", strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), 400, holdfast.KindInvalid, []string{"nested deeper"}},
		{"/v1/sessions", `{"tags":[` + strings.Repeat("0,", 100_000) + "0]}", 400, holdfast.KindInvalid, []string{"more than 100000 values"}},
		{"/v1/sessions", long, 413, holdfast.KindTooLarge, []string{"too large"}},
		{one + "/turns", ``, 400, holdfast.KindInvalid, []string{"body is required"}},
		{one + "/turns", `{"parts":{}}`, 400, holdfast.KindInvalid, []string{"body.parts", "array"}},
		{one + "/turns", `{"text":null}`, 400, holdfast.KindInvalid, []string{"body.text"}},
		{one + "/turns", `{"text":"a","mode":7}`, 400, holdfast.KindInvalid, []string{"body.mode", "got 7"}},
		{one + "/exec", `{"argv":"ls"}`, 400, holdfast.KindInvalid, []string{"body.argv", "array"}},
		{one + "/pause", `null`, 400, holdfast.KindInvalid, []string{"body", "expected object"}},
		{one + "/exec", `{"argv":["ls"],"timeout_ms":1.5}`, 400, holdfast.KindInvalid, []string{"body.timeout_ms", "1.5"}},
		{one + "/exec", `{"argv":["cat"],"stdin":"!"}`, 400, holdfast.KindInvalid, []string{"stdin"}},
		{one + "/pause", `{"interrupt":"yes"}`, 400, holdfast.KindInvalid, []string{"body.interrupt", `"yes"`}},
		{"/v1/containers/stop", `{}`, 400, holdfast.KindInvalid, []string{"exactly one"}},
		{"/v1/containers/stop", `{"all":true,"ids":["a"]}`, 400, holdfast.KindInvalid, []string{"exactly one"}},
	} {
		f.mu.Lock()
		f.last = nil
		f.mu.Unlock()
		resp, body := do(t, srv, request{"POST", c.path, c.body, nil})
		p := wantProblem(t, resp, body, c.status, c.kind)
		for _, want := range c.want {
			if !strings.Contains(p.Detail, want) {
				t.Errorf("POST %s %.60s: %q does not say %q", c.path, c.body, p.Detail, want)
			}
		}
		if len(p.Detail) > 1000 {
			t.Errorf("POST %s: a detail of %d bytes", c.path, len(p.Detail))
		}
		if f.last != nil {
			t.Errorf("POST %s %.60s reached the engine: %+v", c.path, c.body, f.last)
		}
	}
}

func TestBadHeadersAndQueriesAreProblems(t *testing.T) {
	_, srv := start(t, nil)
	one := "/v1/sessions/" + string(createOne(t, srv))
	for _, c := range []struct {
		r    request
		want string
	}{
		{request{"POST", "/v1/sessions", `{}`, http.Header{"Content-Type": {"text/plain"}}}, "content type"},
		{request{"POST", "/v1/sessions", `{}`, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}, "content type"},
		{request{"POST", "/v1/sessions", `{}`, http.Header{"Idempotency-Key": {"a b"}}}, `"a b"`},
		{request{"POST", one + "/exec", `{"command":"true"}`, http.Header{"Idempotency-Key": {"k1"}}}, `"k1"`},
		{request{"POST", one + "/turns", `{"text":"a"}`, http.Header{"Idempotency-Key": {strings.Repeat("k", 201)}}}, "kkkk"},
		{request{"GET", "/v1/sessions?bogus=1", "", nil}, "query.bogus"},
		{request{"GET", "/v1/sessions?limit=0", "", nil}, "query.limit"},
		{request{"GET", "/v1/sessions?limit=501", "", nil}, "501"},
		{request{"GET", "/v1/sessions?limit=x", "", nil}, `"x"`},
		{request{"GET", one + "/turns?after=-1", "", nil}, "-1"},
		{request{"GET", one + "/events?after=-1", "", nil}, `after "-1"`},
		{request{"GET", one + "/events?after=1e3", "", nil}, `"1e3"`},
		{request{"GET", one + "/events", "", http.Header{"Last-Event-Id": {"x"}}}, `Last-Event-ID "x"`},
		{request{"GET", one + "/events?type=turn.complete", "", nil}, `"turn.complete"`},
		{request{"GET", one + "/transcript?after=+1", "", nil}, `" 1"`},
		{request{"GET", one + "/terminal?rows=0", "", nil}, "query.rows"},
	} {
		resp, body := do(t, srv, c.r)
		p := wantProblem(t, resp, body, 400, holdfast.KindInvalid)
		if !strings.Contains(p.Detail, c.want) {
			t.Errorf("%s %s: %q does not say %q", c.r.method, c.r.path, p.Detail, c.want)
		}
	}
}

func TestASH28_UnavailableAndBusySayWhenToTryAgain(t *testing.T) {
	f, srv := start(t, nil)
	for kind, after := range map[holdfast.Kind]string{holdfast.KindUnavailable: "5", holdfast.KindBusy: "1", holdfast.KindConflict: ""} {
		f.mu.Lock()
		f.fail = holdfast.Errorf(kind, "op", "no")
		f.mu.Unlock()
		for _, r := range []request{{"POST", "/v1/sessions", "{}", nil}, {"GET", "/v1/sessions/" + newID() + "/files/x", "", nil}} {
			resp, body := do(t, srv, r)
			wantProblem(t, resp, body, kind.HTTPStatus(), kind)
			if got := resp.Header.Get("Retry-After"); got != after {
				t.Errorf("%s: Retry-After %q", kind, got)
			}
		}
	}
}

func TestPanicIsAProblem(t *testing.T) {
	var log strings.Builder
	f, srv := start(t, func(c *Config) { c.Log = testLog(&log) })
	f.term = nil // calling it panics
	f.exec = nil
	f.mu.Lock()
	f.turns = nil
	f.mu.Unlock()
	resp, body := do(t, srv, request{"POST", "/v1/sessions/" + string(createOne(t, srv)) + "/turns", `{"text":"x"}`, nil})
	wantProblem(t, resp, body, 500, holdfast.KindInternal)
	if strings.Contains(string(body), "nil map") || !strings.Contains(log.String(), "nil map") {
		t.Errorf("%s; log %s", body, log.String())
	}
}

// TestUndeclaredIsRefused: a body that a route does not take, and a query of a page,
// are refused before the route acts; an empty body is none, however it is announced.
func TestUndeclaredIsRefused(t *testing.T) {
	f, srv := start(t, nil)
	id := string(createOne(t, srv))
	f.mu.Lock()
	f.files["a.txt"], f.last = []byte("x"), nil
	f.mu.Unlock()
	addr, doc := strings.TrimPrefix(srv.URL, "http://"), New(newFake().config()).huma.OpenAPI()
	n := 0
	try := func(method, path string) {
		to := strings.NewReplacer("{id}", id, "{turn}", id, "{name}", "helper", "{path}", "a.txt").Replace(path)
		for _, body := range []string{"{", "{}", "\xff", "[]", `{"bogus":1}`, `{"a":1,"a":2}`, "x"} {
			n++
			resp, answer := do(t, srv, request{method, to, body, nil})
			if p := wantProblem(t, resp, answer, 400, holdfast.KindInvalid); p.Hint == "" || !strings.Contains(p.Detail, "takes no body") {
				t.Errorf("%s %s with %q: %+v", method, to, body, p)
			}
		}
		for _, chunks := range []string{"1\r\n{\r\n0\r\n\r\n", "zz\r\n", "2\r\n{"} {
			resp, answer := send(t, addr, method+" "+to+" HTTP/1.1\r\n"+local+"Authorization: Bearer "+testToken+"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+chunks)
			if resp == nil || resp.StatusCode != 400 || resp.Header.Get("Content-Type") != problem.MediaType {
				t.Errorf("%s %s with the chunks %q: %v %s", method, to, chunks, resp, answer)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.last != nil {
			t.Errorf("%s %s reached the engine: %+v", method, to, f.last)
			f.last = nil
		}
	}
	for pattern, op := range spec.Operations(doc) {
		if _, path, _ := strings.Cut(pattern, " "); op.RequestBody == nil {
			try(op.Method, path)
		}
	}
	try("GET", "/docs")
	try("GET", "/openapi.json")
	if n < 150 {
		t.Errorf("%d bodies", n)
	}
	for _, path := range []string{"/docs?bogus=1", "/openapi.json?bogus=1", "/healthz?bogus=1", "/readyz?bogus=1", "/metrics?bogus=1", "/v1/audit/head?bogus=1"} {
		resp, body := do(t, srv, request{"GET", path, "", nil})
		wantProblem(t, resp, body, 400, holdfast.KindInvalid)
	}
	for _, head := range []string{"", "Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"} {
		if head == "" {
			head = "\r\n"
		}
		for _, line := range []string{"GET /docs", "GET /healthz", "GET /v1/agents", "POST /v1/secret-key/rotate", "GET /v1/sessions/" + id} {
			resp, answer := send(t, addr, line+" HTTP/1.1\r\n"+local+"Authorization: Bearer "+testToken+"\r\nConnection: close\r\n"+head)
			if resp == nil || resp.StatusCode != 200 {
				t.Errorf("%s with %q: %v %s", line, head, resp, answer)
			}
		}
	}
}
