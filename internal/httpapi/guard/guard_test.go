package guard

import (
	"bytes"
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

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

const testToken = "test-token"

// keyring finds keys by their secrets.
type keyring map[string]holdfast.Key

func (k keyring) Check(_ context.Context, secret string) (holdfast.Key, error) {
	if key, ok := k[secret]; ok {
		return key, nil
	}
	return holdfast.Key{}, holdfast.Errorf(holdfast.KindUnauthenticated, "key", "no such key")
}

// sessions are all of one trust.
type sessions holdfast.Trust

func (s sessions) Session(context.Context, holdfast.SessionID) (holdfast.Session, error) {
	return holdfast.Session{Trust: holdfast.Trust(s)}, nil
}

// serve serves a few routes behind a guard; edit may change its configuration.
func serve(t testing.TB, edit func(*Config)) *httptest.Server {
	t.Helper()
	cfg := config()
	if edit != nil {
		edit(&cfg)
	}
	srv := httptest.NewServer(New(cfg))
	t.Cleanup(srv.Close)
	return srv
}

// config has a route of each kind, which answer with the name of their caller.
func config() Config {
	rules := map[string]Rule{
		"GET /healthz": {Scope: Public}, "GET /docs": {Scope: Public},
		"GET /v1/things": {Scope: holdfast.ScopeRead, Query: true}, "POST /v1/things": {Scope: holdfast.ScopeWrite, HonoursKey: true, MaxBody: body.Large},
		"PUT /v1/things":             {Scope: holdfast.ScopeWrite, MaxBody: body.Small},
		"POST /v1/sessions/{id}/end": {Scope: holdfast.ScopeWrite, WhyNoKey: "send it again"},
		"PATCH /v1/sessions/{id}":    {Scope: holdfast.ScopeWrite, EngineChecksTrust: true},
		"GET /v1/sessions/{id}":      {Scope: holdfast.ScopeRead},
		"GET /v1/keys":               {Scope: holdfast.ScopeAdmin},
	}
	mux := http.NewServeMux()
	for pattern := range rules {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, CallerOf(r.Context()).Name())
		})
	}
	mux.HandleFunc("GET /v1/forgotten", func(http.ResponseWriter, *http.Request) {})
	return Config{
		Access: Access{Token: testToken, Listen: "127.0.0.1:0"}, Keys: keyring{}, Sessions: sessions(holdfast.Untrusted), Routes: mux, Rules: rules,
		ReadTimeout: 30 * time.Second, WriteTimeout: 20 * time.Second, Answered: func(string, int) {}, Now: time.Now, Rand: rand.Reader,
		Log: slog.New(slog.DiscardHandler),
	}
}

// ask sends a request, with the owner's token unless the header says otherwise.
func ask(t testing.TB, srv *httptest.Server, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	return send(t, srv, method, path, nil, header)
}

func send(t testing.TB, srv *httptest.Server, method, path string, content io.Reader, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, content)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	for k, v := range header {
		r.Header[k] = v
		if k == "Host" {
			r.Host = v[0]
		}
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// refused checks that an answer is a problem of a status and a kind, with a hint.
func refused(t testing.TB, resp *http.Response, text string, status int, kind holdfast.Kind) holdfast.Problem {
	t.Helper()
	var p holdfast.Problem
	if err := json.Unmarshal([]byte(text), &p); err != nil || resp.Header.Get("Content-Type") != problem.MediaType {
		t.Errorf("%d %v %s: %v", resp.StatusCode, resp.Header, text, err)
	}
	if resp.StatusCode != status || p.Kind != kind || p.Hint == "" || p.RequestID != resp.Header.Get(problem.RequestID) {
		t.Errorf("%d %+v; want %d %s", resp.StatusCode, p, status, kind)
	}
	return p
}

func bearer(secret string) http.Header { return http.Header{"Authorization": {"Bearer " + secret}} }

func TestGuardTokenUnauthenticated(t *testing.T) {
	srv := serve(t, nil)
	for name, auth := range map[string][]string{
		"none": nil, "wrong": {"Bearer wrong"}, "prefix": {"Bearer " + testToken[:4]}, "longer": {"Bearer " + testToken + "x"},
		"basic": {"Basic " + testToken}, "bare": {testToken}, "empty": {"Bearer "},
	} {
		for _, path := range []string{"/v1/things", "/v1/nothing", "/v1"} {
			h := http.Header{"Authorization": auth}
			resp, body := ask(t, srv, "GET", path, h)
			p := refused(t, resp, body, 401, holdfast.KindUnauthenticated)
			if p.Hint == "" || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s: %+v %v", name, p, resp.Header)
			}
			if strings.Contains(body, testToken) {
				t.Errorf("%s: the answer holds the token: %s", name, body)
			}
		}
	}
	resp, body := ask(t, srv, "GET", "/v1/things", http.Header{"Authorization": {"bearer " + testToken}})
	if resp.StatusCode != 200 {
		t.Errorf("the right token: %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/healthz", "/docs"} {
		resp, body := ask(t, srv, "GET", path, http.Header{"Authorization": nil})
		if resp.StatusCode != 200 {
			t.Errorf("%s without a token: %d %s", path, resp.StatusCode, body)
		}
	}
}

func TestGuardEmptyTokenAdmitsNobody(t *testing.T) {
	srv := serve(t, func(c *Config) { c.Access.Token = "" })
	for _, auth := range []string{"Bearer ", "Bearer", "Bearer x"} {
		resp, body := ask(t, srv, "GET", "/v1/things", http.Header{"Authorization": {auth}})
		refused(t, resp, body, 401, holdfast.KindUnauthenticated)
	}
}

func TestGuardHostStopsRebinding(t *testing.T) {
	hosts := map[string]bool{
		"localhost:4100": true, "LOCALHOST": true, "127.0.0.1:1": true, "127.1.2.3": true, "[::1]:4100": true, "[::1]": true,
		"listed.example:4100": true,
		"evil.example":        false, "evil.example:4100": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"10.0.0.1": false, "[::2]:4100": false, "0.0.0.0": false,
	}
	srv := serve(t, func(c *Config) { c.Access.Hosts = []string{"listed.example"} })
	open := serve(t, func(c *Config) { c.Access.Listen = "0.0.0.0:4100" })
	for host, ok := range hosts {
		for _, path := range []string{"/v1/things", "/healthz", "/docs"} {
			resp, body := ask(t, srv, "GET", path, http.Header{"Host": {host}})
			if ok && resp.StatusCode != 200 {
				t.Errorf("%s %s: %d %s", host, path, resp.StatusCode, body)
			}
			if !ok {
				p := refused(t, resp, body, 403, holdfast.KindDenied)
				if !strings.Contains(p.Detail, holdfast.Quote(host)) || p.Hint == "" {
					t.Errorf("%s: %+v", host, p)
				}
			}
		}
		if resp, body := ask(t, open, "GET", "/healthz", http.Header{"Host": {host}}); resp.StatusCode != 200 {
			t.Errorf("not on loopback, %s: %d %s", host, resp.StatusCode, body)
		}
	}
}

func TestGuardOriginStopsForeignPages(t *testing.T) {
	srv := serve(t, func(c *Config) { c.Access.Origins = []string{"https://listed.example"} })
	own := srv.URL
	for origin, ok := range map[string]bool{
		own: true, strings.ToUpper(own): true, "https://listed.example": true,
		"https://evil.example": false, "null": false, "http://127.0.0.1:1": false, "file://": false, "https://listed.example.evil": false,
		own + ".evil.example": false,
	} {
		resp, body := ask(t, srv, "GET", "/v1/things", http.Header{"Origin": {origin}})
		if ok != (resp.StatusCode == 200) {
			t.Errorf("%s: %d %s", origin, resp.StatusCode, body)
		}
		if !ok {
			refused(t, resp, body, 403, holdfast.KindDenied)
		}
	}
}

// TestRefusedTokensAreLogged: as warnings that name the sender and the path, a few a minute
// however many requests there are, and never the token.
//
// FH-48.
func TestRefusedTokensAreLogged(t *testing.T) {
	var log lockedBuffer
	srv := serve(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 30 {
		ask(t, srv, "GET", "/v1/things", http.Header{"Authorization": {"Bearer not-the-token"}})
	}
	text := log.String()
	if n := strings.Count(text, "level=WARN"); n < 1 || n > 6 {
		t.Errorf("%d warnings for 30 requests:\n%s", n, text)
	}
	if !strings.Contains(text, `path="\"/v1/things\""`) || !strings.Contains(text, "from=127.0.0.1") || strings.Contains(text, "not-the-token") {
		t.Errorf("the log says\n%s", text)
	}
}

// lockedBuffer takes a log from any goroutine.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
