package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestEveryActingRouteHonoursOrRefusesAKey: an Idempotency-Key is never ignored.
// Each POST and PATCH of the router is in one of the two tables; those that have
// no key refuse it with the reason before the engine sees anything.
func TestEveryActingRouteHonoursOrRefusesAKey(t *testing.T) {
	f, srv := start(t, nil)
	one := string(createOne(t, srv))
	head := http.Header{keyHeader: {"k1"}}
	n := 0
	for path, item := range New(newFake().config()).huma.OpenAPI().Paths {
		for _, op := range operations(item) {
			if op.Method != http.MethodPost && op.Method != http.MethodPatch {
				continue
			}
			n++
			pattern := op.Method + " " + path
			if keyed[pattern] == (keyless[pattern] != "") {
				t.Errorf("%s is in both tables or in none (idempotency.go)", pattern)
			}
			if keyed[pattern] {
				continue
			}
			f.mu.Lock()
			f.last = nil
			f.mu.Unlock()
			to := strings.NewReplacer("{id}", one, "{name}", "reviewer").Replace(path)
			resp, body := do(t, srv, request{op.Method, to, "{}", head})
			p := wantProblem(t, resp, body, 400, holdfast.KindInvalid)
			if !strings.Contains(p.Detail, `"k1"`) || !strings.Contains(p.Hint, keyless[pattern]) || f.last != nil {
				t.Errorf("%s: %+v, asked %+v", pattern, p, f.last)
			}
			if !strings.Contains(op.Description, "An Idempotency-Key is refused") {
				t.Errorf("%s does not say so: %q", pattern, op.Description)
			}
		}
	}
	if n != len(keyed)+len(keyless) {
		t.Errorf("%d routes, %d lines in the tables", n, len(keyed)+len(keyless))
	}
	if resp, body := do(t, srv, request{"POST", "/v1/sessions", "{}", http.Header{keyHeader: {"a", "b"}}}); resp.StatusCode != 400 {
		t.Errorf("two keys: %d %s", resp.StatusCode, body)
	}
}

// TestKeyMakesARepeatedRequestOne: the routes that honour it.
func TestKeyMakesARepeatedRequestOne(t *testing.T) {
	f, srv := start(t, nil)
	head := http.Header{keyHeader: {"k1"}}
	var made [2]string
	for i := range made {
		resp, _ := do(t, srv, request{"POST", "/v1/sessions", "{}", head})
		made[i] = resp.Header.Get("Location")
		if got, want := resp.Header.Get(replayedHeader), []string{"", "true"}[i]; got != want || resp.StatusCode != http.StatusCreated {
			t.Errorf("creation %d: %s, %s %q", i, resp.Status, replayedHeader, got)
		}
	}
	if made[0] != made[1] {
		t.Errorf("two sessions: %v", made)
	}
	f.mu.Lock()
	got := f.key
	f.mu.Unlock()
	if got != "k1" {
		t.Errorf("the engine was given %q", got)
	}
	to := "/v1/sessions/" + string(createOne(t, srv)) + "/turns"
	var at [2]string
	for i := range at {
		resp, _ := do(t, srv, request{"POST", to, `{"text":"hi"}`, head})
		if at[i] = resp.Header.Get("Location"); resp.StatusCode != http.StatusAccepted {
			t.Fatal(resp.Status)
		}
		if got, want := resp.Header.Get(replayedHeader), []string{"", "true"}[i]; got != want {
			t.Errorf("message %d: %s %q", i, replayedHeader, got)
		}
	}
	if at[0] != at[1] {
		t.Errorf("two turns: %v", at)
	}
}
