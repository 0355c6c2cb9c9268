package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestACPOnTheRealCLI: an editor works with a session whose agent is the real Claude
// Code CLI in its box, and is asked; what it shows is what the log has.
func TestACPOnTheRealCLI(t *testing.T) {
	r := newClaudeRig(t)
	d := r.edit("--runtime", "claude", "--model", claudeModel, "--mode", "default")
	id := d.open().SessionId
	d.answering("allow_once")
	text := `<script>[{"tool":"Bash","input":{"command":"echo made > a.txt; cat a.txt"}},{"say":"it is größer now","chunks":4}]</script>`
	if res := d.ask(id, text); res.StopReason != acp.StopReasonEndTurn {
		t.Errorf("%+v", res)
	}
	if d.questions() != 1 || r.file(holdfast.SessionID(id), "a.txt") != "made\n" {
		t.Errorf("asked %d times", d.questions())
	}
	d.answering("reject_once")
	d.ask(id, strings.ReplaceAll(text, "a.txt", "b.txt"))
	if r.file(holdfast.SessionID(id), "b.txt") != "" {
		t.Error("a rejected call ran")
	}
	d.ask(id, "What do you remember?")
	d.sees("You have sent 3 messages")
	d.matches(r.process, id, false)
	again := r.edit()
	again.load(id)
	again.matches(r.process, id, true)
}

// TestMCPFromTheRealCLI: the real Claude Code CLI finds the tools and uses them.
func TestMCPFromTheRealCLI(t *testing.T) {
	cli := filepath.Join(testkit.Claude(t), "claude")
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "mem", holdfast.Untrusted)
	self, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"holdfast": map[string]any{
		"command": self, "args": []string{"mcp"}, "env": map[string]string{"HOLDFAST_URL": p.url, "HOLDFAST_HOME": p.data},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cli, "-p", `<script>[{"tool":"mcp__holdfast__create_session","input":{"title":"of another agent"}},{"tool":"mcp__holdfast__list_sessions","input":{}},{"say":"made"}]</script>`,
		"--mcp-config", string(config), "--strict-mcp-config", "--allowedTools", "mcp__holdfast__create_session,mcp__holdfast__list_sessions", "--model", "claude-sonnet-5-5")
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "PATH=/usr/bin:/bin", "ANTHROPIC_BASE_URL=http://" + l.Addr().String(), "ANTHROPIC_API_KEY=x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "made") {
		t.Fatalf("%v: %s", err, out)
	}
	page, err := p.Sessions(t.Context(), holdfast.SessionFilter{Tag: "mcp"})
	if err != nil || len(page.Sessions) != 1 || page.Sessions[0].Title != "of another agent" {
		t.Errorf("%+v %v", page, err)
	}
	requests := model.Requests()
	if last := string(requests[len(requests)-1].Body); !strings.Contains(last, "of another agent") || !strings.Contains(last, string(page.Sessions[0].ID)) {
		t.Error("the list did not reach the model")
	}
}
