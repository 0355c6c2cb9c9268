package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestWhoNamesTheRuntime: a session that names no runtime takes its agent's, and without
// one the server's. Neither of the two is installed here, which the refusal says of it.
func TestWhoNamesTheRuntime(t *testing.T) {
	cfg := settings(t, "mem")
	cfg.DefaultRuntime = "acp:opencode"
	c, _ := serve(t, cfg)
	for _, a := range []struct{ name, settings string }{{"plain", ""}, {"coder", "runtime: claude\n"}} {
		files := []entry{{name: "CLAUDE.md", data: "x"}}
		if a.settings != "" {
			files = append(files, entry{name: "holdfast.yaml", data: a.settings})
		}
		if _, err := c.DeployAgent(t.Context(), holdfast.AgentName(a.name), tarOf(t, files...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []struct {
		req  holdfast.CreateSession
		want string
	}{
		{holdfast.CreateSession{}, "acp:opencode"},
		{holdfast.CreateSession{Agent: "plain"}, "acp:opencode"},
		{holdfast.CreateSession{Agent: "coder"}, "claude"},
		{holdfast.CreateSession{Agent: "coder", Runtime: "native"}, "native"},
	} {
		s, err := c.CreateSession(t.Context(), k.req, "")
		if k.want == "native" {
			if err != nil || s.Runtime != k.want {
				t.Errorf("%+v: runtime %q, %v", k.req, s.Runtime, err)
			}
			continue
		}
		refusedWith(t, err, holdfast.KindUnavailable, strings.TrimPrefix(k.want, "acp:"), "holdfast runtime install "+strings.TrimPrefix(k.want, "acp:"))
	}
	_, err := c.DeployAgent(t.Context(), "odd", tarOf(t, entry{name: "CLAUDE.md", data: "x"}, entry{name: "holdfast.yaml", data: "runtime: nope\n"}))
	if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
		t.Errorf("an agent with an unknown runtime: %v", err)
	}
}

// refusedWith checks the kind, the value and the hint of a refusal.
func refusedWith(t *testing.T, err error, kind holdfast.Kind, value, hint string) {
	t.Helper()
	if !holdfast.IsKind(err, kind) || !strings.Contains(err.Error(), value) || !strings.Contains(holdfast.HintOf(err), hint) {
		t.Errorf("error %v, hint %q", err, holdfast.HintOf(err))
	}
}
