package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestWSR5_WorkspaceOfASession: a request for a session names its workspace by workspace_id or
// workspaceId, or by none. A bad
// slug is refused before any work, with an error that quotes it, and the OpenAPI document shows the pattern.
//
// WS-R1, WS-R2, WS-R3, WS-R4.
func TestWSR5_WorkspaceOfASession(t *testing.T) {
	f, srv := start(t, nil)
	for body, want := range map[string]string{
		`{}`: "", `{"workspace_id":"site"}`: "site", `{"workspaceId":"site"}`: "site", `{"workspace_id":"site","workspaceId":"site"}`: "site",
	} {
		resp, answer := do(t, srv, request{"POST", "/v1/sessions", body, nil})
		if got := f.last.(holdfast.CreateSession).Workspace; resp.StatusCode != http.StatusCreated || got != want {
			t.Errorf("%s: %d %s, workspace %q", body, resp.StatusCode, answer, got)
		}
	}
	f.last = nil
	resp, answer := do(t, srv, request{"POST", "/v1/sessions", `{"workspace_id":"a","workspaceId":"b"}`, nil})
	if p := wantProblem(t, resp, answer, 400, holdfast.KindInvalid); !strings.Contains(p.Detail, `"a"`) || !strings.Contains(p.Detail, `"b"`) {
		t.Errorf("two workspaces: %+v", p)
	}
	for _, bad := range []string{"", "-a", "a-", "A", "My_Proj", "a_b", "_default", "a.b", "a b", "a\\n", "../x", "a/../b", "a\\\\b", strings.Repeat("a", 64)} {
		for _, key := range []string{"workspace_id", "workspaceId"} {
			resp, answer := do(t, srv, request{"POST", "/v1/sessions", `{"` + key + `":"` + bad + `"}`, nil})
			p := wantProblem(t, resp, answer, 400, holdfast.KindInvalid)
			if !strings.Contains(p.Detail, key) {
				t.Errorf("%s %q: %+v", key, bad, p)
			}
		}
	}
	if f.last != nil {
		t.Errorf("a refused request reached the engine: %+v", f.last)
	}
	schema := New(newFake().config()).huma.OpenAPI().Components.Schemas.Map()["CreateSession"]
	for _, key := range []string{"workspace_id", "workspaceId"} {
		if p := schema.Properties[key]; p == nil || p.Pattern != `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$` {
			t.Errorf("the schema of %s is %+v", key, p)
		}
	}
	for _, path := range []string{"/v1/workspaces/My_Proj", "/v1/workspaces/a.b", "/v1/workspaces/..%2Fx"} {
		for _, method := range []string{"GET", "PATCH", "DELETE"} {
			body := ""
			if method == "PATCH" {
				body = "{}"
			}
			resp, answer := do(t, srv, request{method, path, body, nil})
			wantProblem(t, resp, answer, 400, holdfast.KindInvalid)
		}
	}
}
