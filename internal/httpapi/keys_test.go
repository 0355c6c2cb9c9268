package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/keys"
)

// keyStore keeps keys in memory.
type keyStore struct {
	mu   sync.Mutex
	list []keys.Record
}

func (s *keyStore) PutKey(_ context.Context, r keys.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, r)
	return nil
}

func (s *keyStore) Keys(context.Context) ([]keys.Record, error)                { return s.list, nil }
func (s *keyStore) RevokeKey(context.Context, holdfast.KeyID, time.Time) error { return nil }
func (s *keyStore) TouchKey(context.Context, holdfast.KeyID, time.Time) error  { return nil }

// apiKeys is the real registry over such a store.
func (f *fakeEngine) apiKeys() *keys.Registry {
	r, err := keys.Open(context.Background(), keys.Config{
		Store: &keyStore{}, Now: time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	return r
}

// newKey makes a key through the API.
func newKey(t testing.TB, srv *httptest.Server, body string) (holdfast.Key, string) {
	t.Helper()
	resp, data := do(t, srv, request{"POST", "/v1/keys", body, nil})
	var out struct {
		Key    holdfast.Key
		Secret string
	}
	if err := json.Unmarshal(data, &out); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	return out.Key, out.Secret
}

func bearer(secret string) http.Header { return http.Header{"Authorization": {"Bearer " + secret}} }

func TestKeyRoutes(t *testing.T) {
	_, srv := start(t, nil)
	k, secret := newKey(t, srv, `{"name":"ci","scopes":["read","read"],"max_trust":"trusted"}`)
	if k.Name != "ci" || len(k.Scopes) != 1 || k.Scopes[0] != holdfast.ScopeRead || k.MaxTrust != holdfast.Trusted {
		t.Errorf("%+v", k)
	}
	if !strings.HasPrefix(secret, "hfk_"+string(k.ID)+"_") || len(secret) != 4+16+1+43 {
		t.Errorf("secret of %d characters", len(secret))
	}
	plain, _ := newKey(t, srv, `{}`)
	if plain.MaxTrust != holdfast.Untrusted || len(plain.Scopes) != 1 || plain.Scopes[0] != holdfast.ScopeWrite {
		t.Errorf("the defaults are %+v", plain)
	}
	if resp, body := do(t, srv, request{"GET", "/v1/sessions", "", bearer(secret)}); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	resp, body := do(t, srv, request{"GET", "/v1/keys", "", nil})
	if resp.StatusCode != 200 || !strings.Contains(string(body), string(k.ID)) || !strings.Contains(string(body), "last_used_at") ||
		strings.Contains(string(body), secret) || strings.Contains(string(body), "hash") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for range 2 {
		resp, body = do(t, srv, request{"DELETE", "/v1/keys/" + string(k.ID), "", nil})
		if resp.StatusCode != 200 || !strings.Contains(string(body), "revoked_at") {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		resp, body = do(t, srv, request{"GET", "/v1/sessions", "", bearer(secret)})
		wantProblem(t, resp, body, 401, holdfast.KindUnauthenticated)
	}
	for _, c := range []struct {
		r      request
		status int
	}{
		{request{"DELETE", "/v1/keys/0000000000000000", "", nil}, 404},
		{request{"DELETE", "/v1/keys/x", "", nil}, 400},
		{request{"POST", "/v1/keys", `{"scopes":["root"]}`, nil}, 400},
		{request{"POST", "/v1/keys", `{"max_trust":"root"}`, nil}, 400},
		{request{"POST", "/v1/keys", `{"name":"` + strings.Repeat("x", 101) + `"}`, nil}, 400},
	} {
		resp, body := do(t, srv, c.r)
		if resp.StatusCode != c.status {
			t.Errorf("%v: %d %s", c.r, resp.StatusCode, body)
		}
	}
}

// TestEveryRouteHasAScope holds the table against the document: each operation
// has a line, each line a route, and only what holds nothing is public.
func TestEveryRouteHasAScope(t *testing.T) {
	a := New(newFake().config())
	for path, methods := range paths(t, a) {
		for _, method := range methods {
			r := httptest.NewRequest(method, "http://localhost"+fillPath(path), nil)
			_, pattern := a.mux.Handler(r)
			if rules[pattern].Scope == "" {
				t.Errorf("%s has no scope (rules.go)", pattern)
			}
		}
	}
	for pattern, rule := range rules {
		need := rule.Scope
		method, path, _ := strings.Cut(pattern, " ")
		if _, got := a.mux.Handler(httptest.NewRequest(method, "http://localhost"+fillPath(path), nil)); got != pattern {
			t.Errorf("rules has a line for %s, which is no route", pattern)
		}
		if (need == guard.Public) == (strings.HasPrefix(path, "/v1") || path == "/metrics") {
			t.Errorf("%s is %s", pattern, need)
		}
		if need != guard.Public && !holdfast.ScopeAdmin.Covers(need) {
			t.Errorf("%s needs %q, which is no scope", pattern, need)
		}
	}
}

// paths are the operations of the OpenAPI document.
func paths(t testing.TB, a *API) map[string][]string {
	t.Helper()
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(a.Spec(), &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for path, methods := range doc.Paths {
		for m := range methods {
			out[path] = append(out[path], strings.ToUpper(m))
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d paths", len(out))
	}
	return out
}

// fillPath puts something into each parameter of a path.
func fillPath(path string) string {
	out := strings.TrimSuffix(path, "{$}") // the root, and nothing below it
	for {
		i := strings.IndexByte(out, '{')
		if i < 0 {
			return out
		}
		j := strings.IndexByte(out[i:], '}')
		out = out[:i] + "x" + out[i+j+1:]
	}
}

func TestScopesOpenTheirRoutesOnly(t *testing.T) {
	_, srv := start(t, func(c *Config) { c.Bounds.Rate = -1 })
	for _, have := range holdfast.Words[holdfast.Scope]() {
		_, secret := newKey(t, srv, `{"scopes":["`+string(have)+`"],"max_trust":"trusted"}`)
		for pattern, rule := range rules {
			need := rule.Scope
			method, path, _ := strings.Cut(pattern, " ")
			resp, body := do(t, srv, request{method, fillPath(path), "", bearer(secret)})
			allowed := need == guard.Public || have.Covers(need)
			if allowed == (resp.StatusCode == http.StatusForbidden) || resp.StatusCode == http.StatusUnauthorized {
				t.Errorf("%s with %s: %d %s", pattern, have, resp.StatusCode, body)
			}
			if !allowed {
				if p := wantProblem(t, resp, body, 403, holdfast.KindDenied); !strings.Contains(p.Hint, string(need)) {
					t.Errorf("%s: %+v", pattern, p)
				}
			}
		}
	}
}

func TestKeysOfNoUse(t *testing.T) {
	_, srv := start(t, func(c *Config) { c.Bounds.Failures = -1 })
	_, secret := newKey(t, srv, `{}`)
	other, _ := newKey(t, srv, `{}`)
	for _, s := range []string{
		secret[:len(secret)-1], secret + "x", secret[4:], strings.ToUpper(secret), "hfk_" + string(other.ID) + secret[20:],
		"hfk_", "hfk__", "hfk_" + string(other.ID), "hfk_" + string(other.ID) + "_", "hf_" + secret[4:],
	} {
		resp, body := do(t, srv, request{"GET", "/v1/sessions", "", bearer(s)})
		wantProblem(t, resp, body, 401, holdfast.KindUnauthenticated)
		if strings.Contains(string(body), s) {
			t.Errorf("the answer repeats the token: %s", body)
		}
	}
	resp, body := do(t, srv, request{"GET", "/v1/sessions", "", http.Header{"Authorization": {"Bearer " + secret, "Bearer " + secret}}})
	wantProblem(t, resp, body, 401, holdfast.KindUnauthenticated)
}

func TestMaxTrustBindsBoxesAndKeys(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	_, admin := newKey(t, srv, `{"scopes":["admin"]}`)
	f.store.mu.Lock()
	f.store.rows[id].Trust = holdfast.Trusted
	f.store.mu.Unlock()
	one := "/v1/sessions/" + string(id)
	for _, r := range []request{
		{"POST", one + "/exec", `{"command":"id"}`, bearer(admin)},
		{"GET", one + "/files", "", bearer(admin)},
		{"GET", one + "/files/a", "", bearer(admin)},
		{"PUT", one + "/files/a", "x", bearer(admin)},
		{"DELETE", one + "/files/a", "", bearer(admin)},
		{"GET", one + "/terminal", "", bearer(admin)},
		{"POST", "/v1/keys", `{"max_trust":"trusted"}`, bearer(admin)},
	} {
		resp, body := do(t, srv, r)
		if p := wantProblem(t, resp, body, 403, holdfast.KindDenied); p.Hint == "" {
			t.Errorf("%s %s: %+v", r.method, r.path, p)
		}
		r.header = nil
		if resp, body := do(t, srv, r); resp.StatusCode == 403 {
			t.Errorf("%s %s by the owner: %s", r.method, r.path, body)
		}
	}
	// The engine is told of the maximum.
	for _, r := range []request{
		{"POST", "/v1/sessions", `{}`, nil}, {"PATCH", one, `{"mode":"plan"}`, nil}, {"POST", one + "/turns", `{"text":"x"}`, nil},
	} {
		for secret, want := range map[string]holdfast.Trust{admin: holdfast.Untrusted, testToken: ""} {
			f.mu.Lock()
			f.max = "none"
			f.mu.Unlock()
			r.header = bearer(secret)
			if resp, body := do(t, srv, r); resp.StatusCode >= 300 || f.max != want {
				t.Errorf("%s %s: %d %s, maximum %q", r.method, r.path, resp.StatusCode, body, f.max)
			}
		}
	}
}

// TestRevocationEndsWhatIsOpen: an event stream and a terminal of a key end with
// it, those of others go on.
func TestRevocationEndsWhatIsOpen(t *testing.T) {
	f, srv := start(t, nil)
	f.term = func(ctx context.Context, _ holdfast.TerminalRequest, in io.Reader, out io.Writer, _ <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
		_, _ = out.Write([]byte("$ "))
		<-ctx.Done()
		return holdfast.ExecResult{}, ctx.Err()
	}
	one := "/v1/sessions/" + string(createOne(t, srv))
	k, secret := newKey(t, srv, `{}`)
	_, kept := newKey(t, srv, `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	follow := func(secret string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+one+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = bearer(secret)
		r.Header.Set("Accept", "text/event-stream")
		resp, err := srv.Client().Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	stream, other := follow(secret), follow(kept)
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(srv.URL, "http")+one+"/terminal", &websocket.DialOptions{HTTPHeader: bearer(secret)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if _, data, err := conn.Read(ctx); err != nil || string(data) != "$ " {
		t.Fatalf("%q %v", data, err)
	}

	if resp, body := do(t, srv, request{"DELETE", "/v1/keys/" + string(k.ID), "", nil}); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			break
		}
	}
	do(t, srv, request{"POST", one + "/turns", `{"text":"still here"}`, nil})
	for buf, seen := make([]byte, 4096), ""; !strings.Contains(seen, "still here"); {
		n, err := other.Body.Read(buf)
		if seen += string(buf[:n]); err != nil {
			t.Fatalf("the other key's stream ended: %v", err)
		}
	}
}
