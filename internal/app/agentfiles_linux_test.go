package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestFilesOfAnAgentInAUsedWorkspace: what a workspace has in place of files of an agent's folder stays, and the session,
// whose log names these files, runs. Here CLAUDE.md is that of the first session's agent.
func TestFilesOfAnAgentInAUsedWorkspace(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	folder := tarOf(t, entry{name: "CLAUDE.md", data: "Be brief."}, entry{name: "docs/a.md", data: "a"},
		entry{name: "notes", data: "of the agent"}, entry{name: "same", data: "same\n"}, entry{name: "tool", data: "tool"})
	if _, err := c.DeployAgent(t.Context(), "pilot", folder); err != nil {
		t.Fatal(err)
	}
	first := sessionsOf(t, c, "site", 1)[0]
	turn(t, c, first, inBash("echo mine > docs; echo mine > notes; echo same > same"))
	second, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Agent: "pilot"}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, second.ID, inBash("true"))
	if _, out := run(t, c, second.ID, "cat docs notes same tool"); out != "mine\nmine\nsame\ntool" {
		t.Errorf("the workspace has %q", out)
	}
	var told []string
	for _, n := range logged[holdfast.Notice](t, c, second.ID, holdfast.EventNotice) {
		if n.Code == "agent_files.kept" {
			told = append(told, n.Text)
		}
	}
	if len(told) != 1 || !strings.HasSuffix(told[0], `: "CLAUDE.md", "docs/a.md", "notes"`) {
		t.Errorf("the log tells %q", told)
	}
}
