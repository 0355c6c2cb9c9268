package client

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestWSR12_OldKeyOfTrust: a client reads the trust of a workspace from default_trust_level, or, if an
// older server sends no
// such key, from trust_level; older words are translated, and others are an error (WS-R11, WS-R12).
//
// WS-R119.
func TestWSR12_OldKeyOfTrust(t *testing.T) {
	sent := ""
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/workspaces" {
			fmt.Fprintf(w, `{"workspaces":[{"id":"site",%s}]}`, sent)
			return
		}
		fmt.Fprintf(w, `{"workspace":{"id":"site",%s}}`, sent)
	})
	for sends, want := range map[string]holdfast.Trust{
		`"revision":1`:          "",
		`"trust_level":"vault"`: holdfast.Untrusted,
		`"trust_level":"full"`:  holdfast.Trusted,
		`"default_trust_level":"sandboxed","trust_level":"full"`:    holdfast.Untrusted,
		`"trust_level":"full","default_trust_level":"untrusted"`:    holdfast.Untrusted,
		`"default_trust_level":"trusted","trust_level":"something"`: holdfast.Trusted,
	} {
		sent = sends
		one, err := c.Workspace(t.Context(), "site")
		if err != nil || one.DefaultTrust != want || one.ID != "site" {
			t.Errorf("%s: %+v, %v; want %q", sends, one, err, want)
		}
		list, err := c.Workspaces(t.Context())
		if err != nil || len(list) != 1 || list[0].DefaultTrust != want {
			t.Errorf("%s: %+v, %v; want %q", sends, list, err, want)
		}
	}
	sent = `"trust_level":"root"`
	if _, err := c.Workspace(t.Context(), "site"); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("an unknown level: %v", err)
	}
	if _, err := c.Workspaces(t.Context()); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a list with an unknown level: %v", err)
	}
}
