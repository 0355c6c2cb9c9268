package outside_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/outside"
	"example.com/outside/procdriver"
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/sandbox"
)

// box starts a box of the driver and returns it with its workspace.
func box(t *testing.T) (*sandbox.Box, string) {
	t.Helper()
	home, err := os.MkdirTemp("", "o") // short: a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	d, err := procdriver.New(filepath.Join(home, "run"))
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{Box: "w-mine", Dir: filepath.Join(home, "mine")}
	if _, err := d.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), spec.Box); err != nil {
			t.Error(err)
		}
	})
	conn, err := d.Connect(t.Context(), spec.Box)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.Dial(t.Context(), spec.Box, conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, filepath.Join(spec.Dir, "workspace")
}

// TestAgent: an agent of somebody else uses their tools, in a box of their driver, under
// their policy and their hook, and remembers it.
func TestAgent(t *testing.T) {
	b, workspace := box(t)
	if err := os.WriteFile(filepath.Join(workspace, "a.txt"), []byte("1\n2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	engine, err := outside.Policy()
	if err != nil {
		t.Fatal(err)
	}
	var hooks hook.Registry
	if err := outside.Hook(&hooks); err != nil {
		t.Fatal(err)
	}
	var posted, log []string
	a, err := agent.New(agent.Config{
		Provider: scripted.New(), Model: "scripted", Policy: engine, Mode: holdfast.ModeBypassPermissions, Hooks: &hooks,
		Tools: []tool.Tool{outside.CountLines{}, outside.Post{Posted: &posted}},
		Box:   func(context.Context) (*sandbox.Box, error) { return b, nil },
		Events: func(typ holdfast.EventType, data any) {
			switch d := data.(type) {
			case holdfast.ToolStarted:
				log = append(log, fmt.Sprintf("started in %q", d.Box))
			case holdfast.ToolFinished:
				log = append(log, "finished: "+d.Content)
			case holdfast.ToolDecision:
				if typ == holdfast.EventToolDenied {
					log = append(log, "denied: "+d.Reason)
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := a.Say(t.Context(), `<script>[
		{"tool":"CountLines","input":{"file":"a.txt"}},
		{"tool":"CountLines","input":{"file":"a.png"}},
		{"tool":"Post","input":{"text":"hello"}},
		{"tool":"Post","input":{"text":"a secret"}},
		{"say":"done"}]</script>`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`started in "w-mine"`, "finished: 3", "denied: only text files have lines",
		`started in ""`, "finished: posted", "denied: it is a secret",
	}
	if answer.Text != "done" || answer.Steps != 5 || !slices.Equal(log, want) {
		t.Errorf("%+v\nlog  %q\nwant %q", answer, log, want)
	}
	if len(posted) != 1 {
		t.Errorf("posted %q", posted)
	}
	answer, err = a.Say(t.Context(), "What do you remember?")
	if err != nil || !strings.Contains(answer.Text, "You have sent 2 messages.") || !strings.Contains(answer.Text, "I have seen 4 tool results.") {
		t.Errorf("%q, %v", answer.Text, err)
	}
}
