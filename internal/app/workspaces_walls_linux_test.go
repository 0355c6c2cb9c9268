package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestUnequalPathRulesTakeTurns: a session with path rules never runs in the box of its workspace while a session without
// them uses it. Its turn waits, and its processes have the walls of its own rules.
func TestUnequalPathRulesTakeTurns(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	free := sessionsOf(t, c, "site", 1)[0]
	if _, err := c.DeployAgent(t.Context(), "careful", tarOf(t, entry{name: "CLAUDE.md", data: "x"}, entry{name: "holdfast.yaml", data: "permissions: {sandbox: {deniedPaths: [/workspace/vault]}}\n"})); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Agent: "careful", Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	// The agent's folder is in the workspace, where its settings hold for all; those of its version hold for its sessions.
	run(t, c, ses.ID, "true")
	run(t, c, free, "rm holdfast.yaml")
	put(t, c, free, "vault/key", hidden, 0)
	put(t, c, free, "peek.sh", "cat v*/key", 0)
	if _, err := c.Send(t.Context(), free, holdfast.SendMessage{Text: inBash("touch began; until [ -e go ]; do sleep 0.02; done; cat vault/key")}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, out := run(t, c, free, "ls began 2>/dev/null"); out != "" {
			break
		}
	}
	if _, err := c.Send(t.Context(), ses.ID, holdfast.SendMessage{Text: inBash("sh peek.sh || true")}); err != nil {
		t.Fatal(err)
	}
	for ev, err := range c.Follow(t.Context(), ses.ID, 0, holdfast.EventBoxQueued, holdfast.EventTurnCompleted) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == holdfast.EventTurnCompleted {
			t.Errorf("the turn did not wait: %s", ev.Data)
		}
		break
	}
	put(t, c, free, "go", "", 0)
	for _, id := range []holdfast.SessionID{free, ses.ID} {
		for _, err := range c.Follow(t.Context(), id, 0, holdfast.EventTurnCompleted) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if out := logged[holdfast.ToolFinished](t, c, ses.ID, holdfast.EventToolFinished); len(out) != 1 || strings.Contains(out[0].Content, hidden) {
		t.Errorf("the session with path rules: %+v", out)
	}
	if out := logged[holdfast.ToolFinished](t, c, free, holdfast.EventToolFinished); len(out) != 1 || !strings.Contains(out[0].Content, hidden) {
		t.Errorf("the session without path rules: %+v", out)
	}
}
