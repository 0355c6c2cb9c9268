package app_test

import (
	"testing"

	"github.com/holdfast-run/holdfast"
)

// A session that names no runtime takes its agent's, and without one the server's.
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
		if s, err := c.CreateSession(t.Context(), k.req, ""); err != nil || s.Runtime != k.want {
			t.Errorf("%+v: runtime %q, %v", k.req, s.Runtime, err)
		}
	}
	_, err := c.DeployAgent(t.Context(), "odd", tarOf(t, entry{name: "CLAUDE.md", data: "x"}, entry{name: "holdfast.yaml", data: "runtime: nope\n"}))
	if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
		t.Errorf("an agent with an unknown runtime: %v", err)
	}
}
