package guard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// wire is a connection that notes its write deadlines.
type wire struct {
	http.ResponseWriter
	write []time.Time
	sizes []int
}

func (w *wire) SetWriteDeadline(t time.Time) error { w.write = append(w.write, t); return nil }
func (w *wire) Write(p []byte) (int, error)        { w.sizes = append(w.sizes, len(p)); return len(p), nil }

func TestEachPieceOfAnAnswerHasADeadline(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := &wire{}
	p := &answer{ResponseWriter: w, conn: http.NewResponseController(w), now: func() time.Time { return now }, limit: 20 * time.Second}
	if n, err := p.Write(make([]byte, 2*writeAtOnce+1)); n != 2*writeAtOnce+1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.Write(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if len(w.sizes) != 4 || w.sizes[0] != writeAtOnce || len(w.write) != 4 || !w.write[3].Equal(now.Add(20*time.Second)) {
		t.Errorf("%v %v", w.sizes, w.write)
	}
	if p.status != http.StatusOK || p.bytes != 2*writeAtOnce+1 {
		t.Errorf("noted %d, %d bytes", p.status, p.bytes)
	}
}

// TestARefusalHasADeadlineOfItsOwn: the deadline of the last answer on a connection has
// passed when the next request comes, and must not cut its answer off, refusal or not.
func TestARefusalHasADeadlineOfItsOwn(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	cfg := config()
	cfg.Now = func() time.Time { return now }
	g := New(cfg)
	for _, path := range []string{"/healthz", "/v1/things", "/nowhere", "//healthz"} {
		w := &wire{ResponseWriter: httptest.NewRecorder()}
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if len(w.write) == 0 || !w.write[0].IsZero() || !w.write[len(w.write)-1].Equal(now.Add(20*time.Second)) {
			t.Errorf("%s: deadlines %v", path, w.write)
		}
	}
}

// TestRequestsAreNamedAndCounted: each has an id, the caller's own where it is fit for a
// log, and is counted with the pattern of its route and its status.
func TestRequestsAreNamedAndCounted(t *testing.T) {
	var counted []string
	cfg := config()
	cfg.Answered = func(pattern string, status int) { counted = append(counted, pattern+" "+http.StatusText(status)) }
	g := New(cfg)
	for _, id := range []string{"", "a b", "x\u00e9", strings.Repeat("x", 65), `"`, "a;b", "mine-1_.:"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost/healthz", nil)
		r.Header.Set(problem.RequestID, id)
		g.ServeHTTP(w, r)
		if got := w.Header().Get(problem.RequestID); id == "mine-1_.:" && got != id || id != "mine-1_.:" && len(got) != 36 {
			t.Errorf("%q became %q", id, got)
		}
	}
	g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost/canary", nil))
	if got := slices.Compact(counted); !slices.Equal(got, []string{"GET /healthz OK", " Not Found"}) {
		t.Errorf("%q", got)
	}
}

// TestAPanicIsAProblem, or breaks the connection when the answer has begun.
func TestAPanicIsAProblem(t *testing.T) {
	cfg := config()
	cfg.Rules["GET /early"], cfg.Rules["GET /late"] = Rule{Scope: Public}, Rule{Scope: Public}
	cfg.Routes.HandleFunc("GET /early", func(http.ResponseWriter, *http.Request) { panic("early") })
	cfg.Routes.HandleFunc("GET /late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("late")
	})
	g := New(cfg)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/early", nil))
	if w.Code != http.StatusInternalServerError || w.Header().Get("Content-Type") != problem.MediaType {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("the handler ended with %v", v)
		}
	}()
	g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost/late", nil))
}

// TestLargeBodiesWaitForRoom: a large body holds room until its answer begins or its route
// gives the room back; meanwhile another one waits and is refused, and small ones pass.
func TestLargeBodiesWaitForRoom(t *testing.T) {
	var during func(ctx context.Context)
	cfg := config()
	cfg.ReadTimeout = 2 * time.Second
	cfg.Rules["POST /full"] = Rule{Scope: Public, MaxBody: 4 * body.Large}
	cfg.Routes.HandleFunc("POST /full", func(w http.ResponseWriter, r *http.Request) {
		during(r.Context())
		w.WriteHeader(http.StatusOK)
		during(nil)
	})
	g := New(cfg)
	post := func(path string, size int64) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+path, http.NoBody)
		r.Header = bearer(testToken)
		r.ContentLength = size
		g.ServeHTTP(w, r)
		return w
	}
	outcome := func(size int64) string {
		w := post("/v1/things", size)
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "2" {
			t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
		}
		return http.StatusText(w.Code)
	}
	var got []string
	during = func(ctx context.Context) {
		if ctx != nil {
			got = append(got, outcome(2<<20), outcome(1000))
			return
		}
		got = append(got, outcome(2<<20)) // the answer has begun
	}
	for _, size := range []int64{3 * body.Large, -1} { // announced, and of unknown length
		got = nil
		if w := post("/full", size); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if want := []string{"Too Many Requests", "OK", "OK"}; !slices.Equal(got, want) {
			t.Errorf("while a body of %d bytes is handled: %v", size, got)
		}
	}
	during = func(ctx context.Context) {
		if ctx != nil {
			LeaveRoom(ctx)
			got = []string{outcome(2 << 20)}
		}
	}
	if post("/full", 3*body.Large); !slices.Equal(got, []string{"OK"}) {
		t.Errorf("after LeaveRoom: %v", got)
	}
	if w := post("/full", 5*body.Large); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d %s", w.Code, w.Body)
	}
}

// TestWhatARouteAsksFor: scope, trust, key, query and body, each by the route's rule.
func TestWhatARouteAsksFor(t *testing.T) {
	const one = "/v1/sessions/01890a5d-ac96-774b-bcce-b302099a8057"
	held := holdfast.Errorf(holdfast.KindUnavailable, "serve", "this is a copy").WithHint("h")
	keys := keyring{
		"reads":   {ID: "1", Scopes: []holdfast.Scope{holdfast.ScopeRead}},
		"writes":  {ID: "2", Scopes: []holdfast.Scope{holdfast.ScopeWrite}, MaxTrust: holdfast.Untrusted},
		"trusted": {ID: "3", Scopes: []holdfast.Scope{holdfast.ScopeWrite}, MaxTrust: holdfast.Trusted},
	}
	open := func(c *Config) { c.Keys, c.Sessions = keys, sessions(holdfast.Trusted) }
	srv := serve(t, open)
	copied := serve(t, func(c *Config) { open(c); c.Held = held })
	key := func(values ...string) http.Header { return http.Header{keyHeader: values} }
	for _, c := range []struct {
		srv          *httptest.Server
		method, path string
		header       http.Header
		status       int
		want         string
	}{
		{srv, "GET", "/v1/things", bearer("reads"), 200, "key 1"},
		{srv, "GET", "/v1/things?a=1", nil, 200, "owner"},
		{srv, "GET", "/healthz", bearer("wrong"), 200, ""},
		{srv, "POST", "/v1/things", bearer("reads"), 403, "needs the scope write"},
		{srv, "GET", "/v1/keys", bearer("trusted"), 403, "needs the scope admin"},
		{srv, "GET", "/v1/forgotten", nil, 500, "has no scope"},
		{srv, "GET", "/v1/keys?a=1", nil, 400, "takes no query"},
		{srv, "GET", "/v1/things?a=%zz", nil, 400, "the query of the URL cannot be parsed"},
		{srv, "POST", "/v1/things", key("k"), 200, "owner"},
		{srv, "POST", "/v1/things", key("a", "b"), 400, "2 Idempotency-Key headers"},
		{srv, "POST", "/v1/things", key("a b"), 400, "is not a key"},
		{srv, "POST", "/v1/things", key(strings.Repeat("k", 201)), 400, "is not a key"},
		{srv, "POST", one + "/end", key("k"), 400, "send it again"},
		{srv, "GET", "/v1/things", key("k"), 200, "owner"},
		{srv, "POST", one + "/end", bearer("writes"), 403, "above the API key's maximum"},
		{srv, "POST", strings.Replace(one, "-", "%2D", 1) + "/end", bearer("writes"), 403, "above the API key's maximum"},
		{srv, "POST", one + "/end", bearer("trusted"), 200, "key 3"},
		{srv, "PATCH", one, bearer("writes"), 200, "key 2"},
		{srv, "GET", one, bearer("writes"), 200, "key 2"},
		{copied, "GET", "/v1/things", nil, 200, "owner"},
		{copied, "GET", "/v1/keys", nil, 200, "owner"},
		{copied, "GET", "/healthz", nil, 200, ""},
		{copied, "POST", "/v1/things", nil, 503, "this is a copy"},
		{copied, "PATCH", one, nil, 503, "this is a copy"},
	} {
		resp, text := ask(t, c.srv, c.method, c.path, c.header)
		if resp.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %v: %d %s", c.method, c.path, c.header, resp.StatusCode, text)
		}
	}
	for path, c := range map[string]struct {
		size   int
		status int
		want   string
	}{
		"/v1/keys":        {1, 405, ""},
		one + "/end":      {1, 400, "takes no body"},
		"/v1/things?x=%3": {1, 400, "the query of the URL cannot be parsed"},
		"/v1/things":      {body.Large + 1, 413, "too large"},
	} {
		resp, text := send(t, srv, "POST", path, strings.NewReader(strings.Repeat("x", c.size)), nil)
		if resp.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("POST %s with %d bytes: %d %s", path, c.size, resp.StatusCode, text)
		}
	}
}

// TestMetricsOfTheirOwn: the listener that needs no token serves the metrics, and
// refuses other requests as the API does.
func TestMetricsOfTheirOwn(t *testing.T) {
	srv := httptest.NewServer(Metrics(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a 1\n") })))
	defer srv.Close()
	if resp, text := ask(t, srv, "GET", "/metrics", nil); resp.StatusCode != 200 || text != "a 1\n" {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	for _, c := range []struct {
		method, path, content string
		status                int
		kind                  holdfast.Kind
	}{
		{"GET", "/", "", 404, holdfast.KindNotFound},
		{"GET", "/healthz", "", 404, holdfast.KindNotFound},
		{"GET", "/v1/sessions", "", 404, holdfast.KindNotFound},
		{"POST", "/metrics", "", 405, holdfast.KindInvalid},
		{"GET", "//metrics", "", 400, holdfast.KindInvalid},
		{"GET", "/metrics?bogus=1", "", 400, holdfast.KindInvalid},
		{"GET", "/metrics", "{", 400, holdfast.KindInvalid},
	} {
		resp, text := send(t, srv, c.method, c.path, strings.NewReader(c.content), nil)
		refused(t, resp, text, c.status, c.kind)
	}
}
