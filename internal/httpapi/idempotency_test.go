package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// TestEveryActingRouteHonoursOrRefusesAKey: an Idempotency-Key is never ignored.
// Each POST and PATCH of the router honours it, or refuses it with a reason before the
// engine sees anything.
func TestEveryActingRouteHonoursOrRefusesAKey(t *testing.T) {
	f, srv := start(t, nil)
	one := string(createOne(t, srv))
	head := http.Header{"Idempotency-Key": {"k1"}}
	n := 0
	for pattern, op := range spec.Operations(New(newFake().config()).huma.OpenAPI()) {
		if op.Method != http.MethodPost && op.Method != http.MethodPatch {
			continue
		}
		n++
		rule := rules[pattern]
		if rule.HonoursKey == (rule.WhyNoKey != "") {
			t.Errorf("%s honours the header and says why not, or neither (rules.go)", pattern)
		}
		if rule.HonoursKey {
			continue
		}
		f.mu.Lock()
		f.last = nil
		f.mu.Unlock()
		_, path, _ := strings.Cut(pattern, " ")
		to := strings.NewReplacer("{id}", one, "{name}", "reviewer").Replace(path)
		resp, body := do(t, srv, request{op.Method, to, "{}", head})
		p := wantProblem(t, resp, body, 400, holdfast.KindInvalid)
		if !strings.Contains(p.Detail, `"k1"`) || !strings.Contains(p.Hint, rule.WhyNoKey) || f.last != nil {
			t.Errorf("%s: %+v, asked %+v", pattern, p, f.last)
		}
		if !strings.Contains(op.Description, "An Idempotency-Key is refused") {
			t.Errorf("%s does not say so: %q", pattern, op.Description)
		}
	}
	if n < 16 {
		t.Errorf("%d routes", n)
	}
	if resp, body := do(t, srv, request{"POST", "/v1/sessions", "{}", http.Header{"Idempotency-Key": {"a", "b"}}}); resp.StatusCode != 400 {
		t.Errorf("two keys: %d %s", resp.StatusCode, body)
	}
}

// TestKeyMakesARepeatedRequestOne: the routes that honour it.
func TestKeyMakesARepeatedRequestOne(t *testing.T) {
	f, srv := start(t, nil)
	head := http.Header{"Idempotency-Key": {"k1"}}
	var made [2]string
	for i := range made {
		resp, _ := do(t, srv, request{"POST", "/v1/sessions", "{}", head})
		made[i] = resp.Header.Get("Location")
		if got, want := resp.Header.Get(spec.Replayed), []string{"", "true"}[i]; got != want || resp.StatusCode != http.StatusCreated {
			t.Errorf("creation %d: %s, %s %q", i, resp.Status, spec.Replayed, got)
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
		if got, want := resp.Header.Get(spec.Replayed), []string{"", "true"}[i]; got != want {
			t.Errorf("message %d: %s %q", i, spec.Replayed, got)
		}
	}
	if at[0] != at[1] {
		t.Errorf("two turns: %v", at)
	}
}
