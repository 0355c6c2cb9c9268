package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestApprovalRoutes(t *testing.T) {
	f, srv := start(t, nil)
	f.mu.Lock()
	a := *f.asked()
	f.mu.Unlock()
	one := "/v1/approvals/" + string(a.ID)
	resp, body := do(t, srv, request{"GET", "/v1/approvals?state=all&session=" + questionSession + "&id_prefix=01&cursor=x&limit=1000", "", nil})
	var page holdfast.ApprovalPage
	if err := json.Unmarshal(body, &page); err != nil || resp.StatusCode != 200 || len(page.Approvals) != 1 || page.Approvals[0].InputHash != a.InputHash {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if want := (holdfast.ApprovalFilter{State: "all", Session: questionSession, IDPrefix: "01", Cursor: "x", Limit: 1000}); f.last != want {
		t.Errorf("asked for %+v", f.last)
	}
	if resp, body := do(t, srv, request{"GET", "/v1/approvals?state=denied", "", nil}); resp.StatusCode != 200 || !strings.Contains(string(body), `"approvals":[]`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	rules := "/v1/sessions/" + questionSession + "/rules"
	if resp, body := do(t, srv, request{"DELETE", rules + "?rule=Bash(make%20*)&scope=workspace", "", nil}); resp.StatusCode != 200 || f.last != "Bash(make *)" ||
		!strings.Contains(string(body), `"scope":"workspace"`) || !strings.Contains(string(body), `"by":"owner"`) {
		t.Errorf("%d %s, asked for %v", resp.StatusCode, body, f.last)
	}
	for _, k := range []struct {
		request
		want int
	}{
		{request{"GET", one, "", nil}, 200},
		{request{"GET", rules, "", nil}, 200},
		{request{"DELETE", rules, "", nil}, 400},
		{request{"GET", "/v1/approvals/x", "", nil}, 400},
		{request{"GET", "/v1/approvals/" + questionTurn, "", nil}, 404},
		{request{"GET", "/v1/approvals?state=maybe", "", nil}, 400},
		{request{"GET", "/v1/approvals?limit=1001", "", nil}, 400},
		{request{"POST", "/v1/approvals/x", `{"decision":"allow"}`, nil}, 400},
		{request{"POST", "/v1/approvals/" + questionTurn, `{"decision":"allow"}`, nil}, 404},
		{request{"POST", one, `{"decision":"allow","for":"ever"}`, nil}, 400},
		{request{"POST", one, ``, nil}, 400},
	} {
		if resp, body := do(t, srv, k.request); resp.StatusCode != k.want {
			t.Errorf("%s %s %s: %d %s, want %d", k.method, k.path, k.body, resp.StatusCode, body, k.want)
		}
	}
}

// Who answers is in the record, a key by its id; the second answer is
// refused; who may not have a trusted session does not let its tools run.
func TestAnsweringAnApproval(t *testing.T) {
	f, srv := start(t, nil)
	id := createOne(t, srv)
	trust := func(to holdfast.Trust) {
		f.mu.Lock()
		a := question()
		a.Session = id
		f.approval = &a
		f.mu.Unlock()
		f.store.mu.Lock()
		f.store.rows[id].Trust = to
		f.store.mu.Unlock()
	}
	one := "/v1/approvals/" + string(question().ID)
	k, writer := newKey(t, srv, `{"name":"ci","scopes":["write"]}`)
	_, reader := newKey(t, srv, `{"scopes":["read"]}`)
	answer := func(token string) request { return request{"POST", one, `{"decision":"allow"}`, bearer(token)} }

	trust(holdfast.Trusted)
	for _, secret := range []string{reader, writer} {
		resp, body := do(t, srv, answer(secret))
		wantProblem(t, resp, body, 403, holdfast.KindDenied)
	}
	for token, by := range map[string]string{testToken: "owner", writer: "key " + string(k.ID)} {
		if trust(holdfast.Untrusted); token == testToken {
			trust(holdfast.Trusted)
		}
		resp, body := do(t, srv, answer(token))
		if resp.StatusCode != 200 || !strings.Contains(string(body), `"answered_by":"`+by+`"`) {
			t.Errorf("%d %s, want it answered by %s", resp.StatusCode, body, by)
		}
		resp, body = do(t, srv, answer(token))
		wantProblem(t, resp, body, 409, holdfast.KindConflict)
	}
}
