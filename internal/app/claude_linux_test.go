//go:build linux

package app_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// claudeSettings are those of a server that has the pinned CLI.
func claudeSettings(t *testing.T) config.Config {
	t.Helper()
	cfg := settings(t, "local")
	// The trees are what they are to the bit, whoever links to them.
	if out, err := exec.Command("cp", "-al", testkit.Runtimes(t, "claude"), filepath.Join(cfg.Data, "runtimes")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func claudeSession(t *testing.T, c *client.Client, with func(*holdfast.CreateSession)) holdfast.Session {
	t.Helper()
	req := holdfast.CreateSession{Runtime: "claude"}
	if with != nil {
		with(&req)
	}
	s, err := c.CreateSession(t.Context(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClaudeTurns: turns 1, 2 and 3 of the real CLI in a box, in one process, with a
// tool between them: each knows what was before it.
func TestClaudeTurns(t *testing.T) {
	c, _ := serve(t, claudeSettings(t))
	s := claudeSession(t, c, nil)
	say := func(text string) holdfast.TurnEnded { return turn(t, c, s.ID, text) }
	if end := say("one"); !strings.Contains(end.Result, "You have sent 1 messages") {
		t.Errorf("turn 1 said %q", end.Result)
	}
	if end := say(`<script>[{"think":"hm","say":"now","tools":[{"tool":"Bash","input":{"command":"echo a >> f"}},{"tool":"Bash","input":{"command":"echo b >> f; cat f"}}]},{"say":"done"}]</script>`); end.Result != "done" || end.Steps != 2 {
		t.Errorf("turn 2: %+v", end)
	}
	if end := say("three"); !strings.Contains(end.Result, "You have sent 3 messages") || !strings.Contains(end.Result, "2 tool results") {
		t.Errorf("turn 3 said %q", end.Result)
	}
	var tiers []holdfast.Tier
	for _, a := range logged[holdfast.AgentStarted](t, c, s.ID, holdfast.EventAgentStarted) {
		tiers = append(tiers, a.Tier)
	}
	if fmt.Sprint(tiers) != "[fresh live live]" {
		t.Errorf("tiers %v", tiers)
	}
}
