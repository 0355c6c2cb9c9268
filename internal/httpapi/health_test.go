package httpapi

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestHealthTellsStrangersNothing: callers without a valid key learn that the server
// runs and whether it takes work; process, version, driver and reasons need a key.
func TestHealthTellsStrangersNothing(t *testing.T) {
	f, srv := start(t, nil)
	_, reader := newKey(t, srv, `{"scopes":["read"]}`)
	revoked, old := newKey(t, srv, `{"scopes":["admin"],"max_trust":"trusted"}`)
	if resp, body := do(t, srv, request{"DELETE", "/v1/keys/" + string(revoked.ID), "", nil}); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	strangers := map[string]http.Header{
		"no token": {"Authorization": nil}, "an empty one": {"Authorization": {""}}, "a wrong one": bearer("hf_wrong"), "a revoked key": bearer(old),
		"two": {"Authorization": {"Bearer " + testToken, "Bearer " + testToken}}, "another scheme": {"Authorization": {"Basic " + testToken}},
	}
	for _, h := range []holdfast.Health{
		{Status: "ok", Version: "1.2.3-canary", Driver: "mem", PID: 4711471147114711, RunningTurns: 4242424242424242},
		{Status: "read-only", ReadOnly: "canary: no space left", Version: "1.2.3-canary", Driver: "mem", PID: 4711471147114711},
		{Status: "draining", RunningTurns: 4242424242424242, Version: "1.2.3-canary", PID: 4711471147114711},
	} {
		f.health = h
		for name, header := range strangers {
			resp, body := do(t, srv, request{"GET", "/healthz", "", header})
			if resp.StatusCode != 200 || strings.TrimSpace(string(body)) != `{"status":"ok"}` {
				t.Errorf("%s: %d %s", name, resp.StatusCode, body)
			}
			resp, body = do(t, srv, request{"GET", "/readyz", "", header})
			for _, word := range []string{"canary", "mem\"", "4711471147114711", "4242424242424242"} {
				if strings.Contains(string(body), word) {
					t.Errorf("%s: /readyz tells %q: %s", name, word, body)
				}
			}
			if (resp.StatusCode == 200) != (h.Status == "ok") {
				t.Errorf("%s: %d %s", name, resp.StatusCode, body)
			}
		}
		for _, secret := range []string{reader, testToken} {
			resp, body := do(t, srv, request{"GET", "/healthz", "", bearer(secret)})
			if got := decode[holdfast.Health](t, body); resp.StatusCode != 200 || !reflect.DeepEqual(got, h) {
				t.Errorf("with a key: %d %s", resp.StatusCode, body)
			}
		}
	}
}
