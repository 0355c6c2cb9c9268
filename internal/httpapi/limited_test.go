package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// actsOnSessions reports whether a route may change a session or work in its box: every
// route that does more than read.
func actsOnSessions(pattern string) bool {
	return strings.Contains(pattern, " /v1/sessions/{id}") && rules[pattern].Scope != holdfast.ScopeRead
}

// TestEveryVerbOfASessionIsWithinTheTrustOfTheKey: a key that is limited to untrusted
// sessions can read a trusted one but do nothing else to it, by any route.
func TestEveryVerbOfASessionIsWithinTheTrustOfTheKey(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Bounds.Rate = -1 })
	id := createOne(t, srv)
	f.store.mu.Lock()
	f.store.rows[id].Trust = holdfast.Trusted
	f.store.mu.Unlock()
	_, limited := newKey(t, srv, `{"scopes":["admin"]}`)
	verbs := 0
	for pattern := range rules {
		if !actsOnSessions(pattern) {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		path = fillPath(strings.Replace(path, "{id}", string(id), 1))
		if rules[pattern].EngineChecksTrust {
			body := map[string]string{"PATCH": `{"mode":"plan"}`, "POST": `{"text":"x"}`}[method]
			f.mu.Lock()
			f.max = "none"
			f.mu.Unlock()
			if resp, said := do(t, srv, request{method, path, body, bearer(limited)}); f.max != holdfast.Untrusted {
				t.Errorf("%s: %d %s, the engine heard of the maximum %q", pattern, resp.StatusCode, said, f.max)
			}
			continue
		}
		verbs++
		for _, escaped := range []string{path, strings.Replace(path, "-", "%2D", 1)} {
			resp, body := do(t, srv, request{method, escaped, "", bearer(limited)})
			if p := wantProblem(t, resp, body, http.StatusForbidden, holdfast.KindDenied); !strings.Contains(p.Hint, "--max-trust trusted") {
				t.Errorf("%s: %+v", pattern, p)
			}
		}
		if s, err := f.Session(t.Context(), id); err != nil || !s.Status.CanBecome(holdfast.StatusEnded) {
			t.Fatalf("%s: the session is %+v, %v", pattern, s, err)
		}
	}
	if verbs < 11 {
		t.Errorf("%d verbs", verbs)
	}
	_, trusted := newKey(t, srv, `{"max_trust":"trusted"}`)
	for _, secret := range []string{trusted, testToken} {
		if resp, body := do(t, srv, request{"POST", "/v1/sessions/" + string(id) + "/interrupt", "", bearer(secret)}); resp.StatusCode == http.StatusForbidden {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	// The scope read still allows reading.
	if resp, body := do(t, srv, request{"GET", "/v1/sessions/" + string(id), "", bearer(limited)}); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := do(t, srv, request{"POST", "/v1/sessions/" + string(id) + "/end", "", bearer(trusted)}); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
