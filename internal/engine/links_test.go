package engine_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Commands are checked against the links of the session's files, also if its box does
// not run.
func TestCommandsAreJudgedByTheLinksOfAWorkspace(t *testing.T) {
	d := newDecider("Bash", `{"command":"cat l/key"}`)
	_, _, dir := layered(t, d, nil, policy.Config{Sandbox: &check.Settings{DeniedPaths: []string{"/workspace/secret"}}})
	if err := os.Mkdir(filepath.Join(dir, "secret"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := d.decide(); got.Verdict != policy.Allowed {
		t.Fatalf("without a link: %+v", got)
	}
	if err := os.Symlink("secret", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []string{"cat l/key", "cat ?/key", "cd l && cat key", "cat /workspace/l/../secret/key"} {
		b, err := json.Marshal(map[string]string{"command": cmd})
		if err != nil {
			t.Fatal(err)
		}
		d.ask.Input = b
		if got := d.decide(); got.Verdict != policy.Denied || got.By != "sandbox" {
			t.Errorf("%s: %+v", cmd, got)
		}
	}
}

// A running box is asked about all its files, as they are now.
func TestCommandsAreJudgedByTheLinksOfABox(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) {
			p, err := policy.New(policy.Config{Sandbox: &check.Settings{DeniedPaths: []string{"/workspace/secret", "/etc"}}})
			if err != nil {
				t.Fatal(err)
			}
			c.Policy = p
		}
	})
	id := m.create(holdfast.CreateSession{})
	explain := func(cmd string) holdfast.PolicyExplanation {
		t.Helper()
		b, err := json.Marshal(map[string]string{"command": cmd})
		if err != nil {
			t.Fatal(err)
		}
		d, err := m.Explain(t.Context(), id, holdfast.ExplainPolicy{Tool: "Bash", Input: b})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const cmd = "cat /home/agent/l/key"
	m.run(id, `<script>[{"tool":"Bash","input":{"command":"echo hello"}},{"say":"ok"}]</script>`)
	if m.live[holdfast.Untrusted].Live(m.box(id)) == nil {
		t.Fatal("the box does not run")
	}
	if got := explain(cmd); got.Verdict != "allow" {
		t.Fatalf("without a link: %+v", got)
	}
	if err := os.Symlink("/workspace/secret", filepath.Join(m.dir, "sessions", string(id), "home", "l")); err != nil {
		t.Fatal(err)
	}
	if got := explain(cmd); got.Verdict != "deny" || !strings.Contains(got.Reason, "/workspace/secret") {
		t.Errorf("a link to what is denied: %+v", got)
	}
	if got := explain("cat /home/agent/?/key"); got.Verdict != "deny" {
		t.Errorf("a pattern that leads through the link: %+v", got)
	}
	if got := explain("cat /home/agent/other"); got.Verdict != "allow" {
		t.Errorf("a path without links: %+v", got)
	}
}

// BenchmarkLinks measures one decision about a command with path settings, for which a
// running box is asked about links.
func BenchmarkLinks(b *testing.B) {
	m := newMachine(b, func(m *machine) {
		m.set = func(c *engine.Config) {
			p, err := policy.New(policy.Config{Sandbox: &check.Settings{DeniedPaths: []string{"/workspace/secret", "/etc"}}})
			if err != nil {
				b.Fatal(err)
			}
			c.Policy = p
		}
	})
	id := m.create(holdfast.CreateSession{})
	m.run(id, `<script>[{"tool":"Bash","input":{"command":"echo hello"}},{"say":"ok"}]</script>`)
	req := holdfast.ExplainPolicy{Tool: "Bash", Input: json.RawMessage(`{"command":"cd a && go test ./b/c/... 2>&1 | tail -20"}`)}
	for b.Loop() {
		if _, err := m.Explain(b.Context(), id, req); err != nil {
			b.Fatal(err)
		}
	}
}
