//go:build linux

package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
)

// TestForksStayBound: a fork of a session in a workspace, and a fork of that, are bound by the rules, the destinations
// and the limits that the workspace had, also after the workspace was deleted and another one has its name (I-50). The
// session that the deletion took out of the workspace is bound as well.
func TestForksStayBound(t *testing.T) {
	c, _ := serve(t, func() config.Config {
		cfg := settings(t, "local")
		cfg.Network.Allow = []string{"*.example"}
		return cfg
	}())
	s := sessionsOf(t, c, "site", 1)[0]
	if res, out := run(t, c, s, "mkdir secrets; echo "+canary+" > secrets/key; echo fine > open"); res.ExitCode != 0 {
		t.Fatal(out)
	}
	if _, err := c.UpdateWorkspace(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{
		Network: &[]string{"b.example"}, Limits: map[string]string{"tmp": "8MiB"},
		Permissions: map[string][]string{"deny": {"Read(/workspace/secrets/**)", "Bash(date *)"}},
	}}); err != nil {
		t.Fatal(err)
	}
	bound := func(what string, id holdfast.SessionID) {
		t.Helper()
		if _, out := run(t, c, id, "cat open secrets/key; sh -c 'cat s*/k*'"); !strings.Contains(out, "fine") || strings.Contains(out, canary) {
			t.Errorf("%s reads %q", what, out)
		}
		if size := sizeOfTmp(t, c, id); size != 8<<20 {
			t.Errorf("%s has a /tmp of %d bytes", what, size)
		}
		if end := turn(t, c, id, script(bashCall("date -u"), `{"tool":"Read","input":{"file_path":"secrets/key"}}`)); len(end.Denials) != 2 {
			t.Errorf("%s is denied %+v", what, end.Denials)
		}
		if _, err := c.UpdateSession(t.Context(), id, holdfast.UpdateSession{AllowNet: []string{"a.example"}}); !holdfast.IsKind(err, holdfast.KindConflict) {
			t.Errorf("%s reaches another destination: %v", what, err)
		}
		if _, err := c.UpdateSession(t.Context(), id, holdfast.UpdateSession{AllowNet: []string{"b.example"}}); err != nil {
			t.Errorf("%s does not reach the workspace's destination: %v", what, err)
		}
	}
	bound("the session", s)
	fork := func(of holdfast.SessionID) holdfast.SessionID {
		t.Helper()
		f, err := c.Fork(t.Context(), of, holdfast.ForkSession{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return f.ID
	}
	first := fork(s)
	bound("a fork", first)
	if _, err := c.DeleteWorkspace(t.Context(), "site", true, false); err != nil {
		t.Fatal(err)
	}
	sessionsOf(t, c, "site", 1)
	bound("a fork of a deleted workspace's session", first)
	bound("the session of a deleted workspace", s)
	bound("a fork of a fork", fork(first))
}
