package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// withTurns makes a session of the fake with as many turns.
func withTurns(t testing.TB, f *fakeEngine, n int) holdfast.SessionID {
	t.Helper()
	s, _, err := f.Create(t.Context(), holdfast.CreateSession{Title: "one"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := f.Send(t.Context(), s.ID, holdfast.SendMessage{Text: "hi"}); err != nil {
			t.Fatal(err)
		}
	}
	return s.ID
}

func TestCheckpointRoutes(t *testing.T) {
	f, srv := start(t, nil)
	id := withTurns(t, f, 3)
	one := "/v1/sessions/" + string(id)
	var numbers []int64
	for cursor, n := "", 0; n < 3; n++ {
		resp, body := do(t, srv, request{"GET", one + "/checkpoints?limit=2&cursor=" + cursor, "", nil})
		page := decode[holdfast.CheckpointPage](t, body)
		if resp.StatusCode != 200 || !reflect.DeepEqual(f.last, []any{cursor, 2}) {
			t.Fatalf("%d %s, asked %+v", resp.StatusCode, body, f.last)
		}
		for _, cp := range page.Checkpoints {
			numbers = append(numbers, cp.Number)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if !reflect.DeepEqual(numbers, []int64{3, 2, 1}) {
		t.Errorf("the pages have the checkpoints %v", numbers)
	}
	if _, body := do(t, srv, request{"GET", "/v1/sessions/" + string(withTurns(t, f, 0)) + "/checkpoints", "", nil}); strings.TrimSpace(string(body)) != `{"checkpoints":[]}` {
		t.Errorf("no checkpoints are %s", body)
	}

	first := holdfast.CheckpointID(f.turns[id][0].ID)
	resp, body := do(t, srv, request{"POST", one + "/rewind", `{"to":"` + strings.ToUpper(string(first)) + `","interrupt":true,"files":"keep","dry_run":true}`, nil})
	got := decode[holdfast.RewoundSession](t, body)
	if resp.StatusCode != 200 || got.Session.ID != id || got.Rewound.Checkpoint != first || got.Rewound.Kept != questionTurn {
		t.Errorf("rewind: %d %s", resp.StatusCode, body)
	}
	if want := (holdfast.RewindSession{To: first, Interrupt: true, Files: "keep", DryRun: true}); f.last != want {
		t.Errorf("rewind asked for %+v", f.last)
	}

	own := holdfast.SessionID(newID())
	resp, body = do(t, srv, request{"POST", one + "/fork", `{"at":"` + string(first) + `","id":"` + strings.ToUpper(string(own)) + `","title":"two"}`, nil})
	if s := decode[sessionBody](t, body).Session; resp.StatusCode != 201 || s.ID != own || resp.Header.Get("Location") != "/v1/sessions/"+string(own) {
		t.Errorf("fork: %d %s", resp.StatusCode, body)
	}
	if want := (holdfast.ForkSession{At: first, ID: own, Title: "two"}); f.last != want {
		t.Errorf("fork asked for %+v", f.last)
	}
	if resp, body := do(t, srv, request{"POST", one + "/fork", "", nil}); resp.StatusCode != 201 || f.last != (holdfast.ForkSession{}) {
		t.Errorf("fork without a body: %d %s, asked %+v", resp.StatusCode, body, f.last)
	}
}

func TestCheckpointRoutesRefuse(t *testing.T) {
	f, srv := start(t, nil)
	one, none := "/v1/sessions/"+string(withTurns(t, f, 1)), "/v1/sessions/"+newID()
	to := `{"to":"` + newID() + `"}`
	for _, c := range []struct {
		request
		status int
		kind   holdfast.Kind
	}{
		{request{"GET", one + "/checkpoints?limit=0", "", nil}, 400, holdfast.KindInvalid},
		{request{"GET", one + "/checkpoints?limit=1001", "", nil}, 400, holdfast.KindInvalid},
		{request{"GET", one + "/checkpoints?cursor=x", "", nil}, 400, holdfast.KindInvalid},
		{request{"GET", "/v1/sessions/x/checkpoints", "", nil}, 400, holdfast.KindInvalid},
		{request{"GET", none + "/checkpoints", "", nil}, 404, holdfast.KindNotFound},
		{request{"POST", one + "/checkpoints/3/hold", "", nil}, 400, holdfast.KindInvalid},
		{request{"DELETE", one + "/checkpoints/start/hold", "", nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/checkpoints/" + newID() + "/hold", "", nil}, 404, holdfast.KindNotFound},
		{request{"DELETE", one + "/checkpoints/" + newID() + "/hold", "", nil}, 404, holdfast.KindNotFound},
		{request{"POST", none + "/checkpoints/" + newID() + "/hold", "", nil}, 404, holdfast.KindNotFound},
		{request{"POST", one + "/rewind", "", nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/rewind", `{}`, nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/rewind", `{"to":"3"}`, nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/rewind", `{"to":""}`, nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/rewind", strings.Replace(to, "}", `,"files":"none"}`, 1), nil}, 400, holdfast.KindInvalid},
		{request{"POST", "/v1/sessions/x/rewind", to, nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/rewind", to, nil}, 404, holdfast.KindNotFound},
		{request{"POST", none + "/rewind", to, nil}, 404, holdfast.KindNotFound},
		{request{"POST", one + "/fork", `{"at":"3"}`, nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/fork", `{"id":"x"}`, nil}, 400, holdfast.KindInvalid},
		{request{"POST", "/v1/sessions/x/fork", `{}`, nil}, 400, holdfast.KindInvalid},
		{request{"POST", one + "/fork", strings.Replace(to, "to", "at", 1), nil}, 404, holdfast.KindNotFound},
		{request{"POST", none + "/fork", `{}`, nil}, 404, holdfast.KindNotFound},
	} {
		resp, body := do(t, srv, c.request)
		if p := wantProblem(t, resp, body, c.status, c.kind); p.Hint == "" && c.status == 400 && !strings.Contains(c.path, "limit") && c.body != "" && !strings.Contains(c.body, "none") && c.body != "{}" {
			t.Errorf("%s %s %s has no hint: %+v", c.method, c.path, c.body, p)
		}
	}
	f.mu.Lock()
	f.fail = holdfast.Errorf(holdfast.KindConflict, "session.rewind", "a turn runs").WithHint("--interrupt")
	f.mu.Unlock()
	resp, body := do(t, srv, request{"POST", one + "/rewind", to, nil})
	if p := wantProblem(t, resp, body, 409, holdfast.KindConflict); p.Hint != "--interrupt" {
		t.Errorf("%+v", p)
	}
}

// TestHoldRoutes: POST holds a checkpoint, DELETE releases it, both may be repeated, and the list shows it.
func TestHoldRoutes(t *testing.T) {
	f, srv := start(t, nil)
	id := withTurns(t, f, 2)
	at := holdfast.CheckpointID(f.turns[id][0].ID)
	one := "/v1/sessions/" + string(id) + "/checkpoints"
	for _, c := range []struct {
		method string
		held   bool
	}{{"POST", true}, {"POST", true}, {"DELETE", false}, {"DELETE", false}} {
		resp, body := do(t, srv, request{c.method, one + "/" + strings.ToUpper(string(at)) + "/hold", "", nil})
		got := decode[struct{ Checkpoint holdfast.Checkpoint }](t, body).Checkpoint
		if resp.StatusCode != 200 || got.ID != at || got.Held != c.held || !reflect.DeepEqual(f.last, []any{at, c.held}) {
			t.Errorf("%s: %d %s, asked %+v", c.method, resp.StatusCode, body, f.last)
		}
		_, body = do(t, srv, request{"GET", one, "", nil})
		if shown := strings.Contains(string(body), `"held":true`); shown != c.held {
			t.Errorf("after %s the list is %s", c.method, body)
		}
	}
	_, key := newKey(t, srv, `{"scopes":["read"]}`)
	for _, method := range []string{"POST", "DELETE"} {
		resp, body := do(t, srv, request{method, one + "/" + string(at) + "/hold", "", bearer(key)})
		wantProblem(t, resp, body, 403, holdfast.KindDenied)
	}
}

// TestForkKeyMakesOneSession: a repeated fork with the same key answers with the first one's session.
func TestForkKeyMakesOneSession(t *testing.T) {
	f, srv := start(t, nil)
	to := "/v1/sessions/" + string(withTurns(t, f, 1)) + "/fork"
	var made [2]string
	for i := range made {
		resp, body := do(t, srv, request{"POST", to, "{}", http.Header{"Idempotency-Key": {"k1"}}})
		made[i] = resp.Header.Get("Location")
		if got, want := resp.Header.Get(spec.Replayed), []string{"", "true"}[i]; got != want || resp.StatusCode != http.StatusCreated {
			t.Errorf("fork %d: %s, %s %q: %s", i, resp.Status, spec.Replayed, got, body)
		}
	}
	if made[0] == "" || made[0] != made[1] || f.key != "k1" {
		t.Errorf("two sessions: %v, key %q", made, f.key)
	}
}

// TestCheckpointsOfATrustedSession: a key for untrusted sessions may look at them, but neither hold nor
// release one, and neither rewind nor fork the session.
func TestCheckpointsOfATrustedSession(t *testing.T) {
	f, srv := start(t, nil)
	id := withTurns(t, f, 1)
	_, key := newKey(t, srv, `{"scopes":["admin"]}`)
	f.store.mu.Lock()
	f.store.rows[id].Trust = holdfast.Trusted
	f.store.mu.Unlock()
	one, to := "/v1/sessions/"+string(id), `{"to":"`+string(f.turns[id][0].ID)+`"}`
	hold := one + "/checkpoints/" + string(f.turns[id][0].ID) + "/hold"
	for _, r := range []request{
		{"POST", one + "/rewind", to, bearer(key)},
		{"POST", one + "/fork", "{}", bearer(key)},
		{"POST", hold, "", bearer(key)},
		{"DELETE", hold, "", bearer(key)},
	} {
		resp, body := do(t, srv, r)
		if p := wantProblem(t, resp, body, 403, holdfast.KindDenied); p.Hint == "" {
			t.Errorf("%s: %+v", r.path, p)
		}
		r.header = nil
		if resp, body := do(t, srv, r); resp.StatusCode >= 300 {
			t.Errorf("%s by the owner: %d %s", r.path, resp.StatusCode, body)
		}
	}
	if resp, body := do(t, srv, request{"GET", one + "/checkpoints", "", bearer(key)}); resp.StatusCode != 200 {
		t.Errorf("the list: %d %s", resp.StatusCode, body)
	}
}

func TestCheckpointsThroughTheClient(t *testing.T) {
	f, srv := start(t, nil)
	c, ctx := newClient(t, srv), t.Context()
	id := withTurns(t, f, 3)
	page, err := c.Checkpoints(ctx, id, "", 2)
	if err != nil || len(page.Checkpoints) != 2 || page.Next == "" || !reflect.DeepEqual(f.last, []any{"", 2}) {
		t.Errorf("%+v %v", page, err)
	}
	if page, err = c.Checkpoints(ctx, id, page.Next, 0); err != nil || len(page.Checkpoints) != 1 || page.Next != "" {
		t.Errorf("%+v %v", page, err)
	}
	n := 0
	for cp, err := range c.AllCheckpoints(ctx, id) {
		if n++; err != nil || cp.Number != int64(4-n) {
			t.Errorf("%+v %v", cp, err)
		}
	}
	if n != 3 || !reflect.DeepEqual(f.last, []any{"", 1000}) {
		t.Errorf("%d checkpoints, asked %+v", n, f.last)
	}
	for _, err := range c.AllCheckpoints(ctx, holdfast.SessionID(newID())) {
		if !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Errorf("of no session: %v", err)
		}
	}
	first := page.Checkpoints[0].ID
	for _, held := range []bool{true, false} {
		call := c.HoldCheckpoint
		if !held {
			call = c.ReleaseCheckpoint
		}
		if cp, err := call(ctx, id, first); err != nil || cp.ID != first || cp.Held != held {
			t.Errorf("held %v: %+v %v", held, cp, err)
		}
		if _, err := call(ctx, id, holdfast.CheckpointID(newID())); !holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.HintOf(err) == "" {
			t.Errorf("held %v of no checkpoint: %v", held, err)
		}
	}
	back, err := c.Rewind(ctx, id, holdfast.RewindSession{To: first, Files: "keep"})
	if err != nil || back.Session.ID != id || back.Rewound.Checkpoint != first || f.last != (holdfast.RewindSession{To: first, Files: "keep"}) {
		t.Errorf("%+v %v, asked %+v", back, err, f.last)
	}
	if _, err := c.Rewind(ctx, id, holdfast.RewindSession{To: holdfast.CheckpointID(newID())}); !holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.HintOf(err) == "" {
		t.Errorf("to no checkpoint: %v", err)
	}
	s, err := c.Fork(ctx, id, holdfast.ForkSession{At: first, Title: "two"}, "k")
	if err != nil || s.Title != "two" || f.key != "k" {
		t.Errorf("%+v %v, key %q", s, err, f.key)
	}
	if again, err := c.Fork(ctx, id, holdfast.ForkSession{At: first, Title: "two"}, "k"); err != nil || again.ID != s.ID {
		t.Errorf("again: %+v %v", again, err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Rewind(canceled, id, holdfast.RewindSession{To: first}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("canceled: %v", err)
	}
}
