package app_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestSDKH0_SnapshotTaken: a hook hears of each snapshot, with its reason and the id of the checkpoint.
func TestSDKH0_SnapshotTaken(t *testing.T) {
	cfg := settings(t, "local")
	heard := filepath.Join(t.TempDir(), "heard")
	cfg.Hooks = config.Hooks{hook.SnapshotTaken: {{Hooks: []hook.Entry{{Type: "command", Command: "cat >> " + heard}}}}}
	c, _ := serve(t, cfg)
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"echo a > a"}},{"say":"done"}]</script>`)
	turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"cat a"}},{"say":"done"}]</script>`)
	page, err := c.Checkpoints(t.Context(), ses.ID, "", 0)
	if err != nil || len(page.Checkpoints) != 2 || page.Checkpoints[0].Workspace != page.Checkpoints[1].Workspace {
		t.Fatalf("checkpoints %+v, %v", page, err)
	}
	testkit.Eventually(t, "the hook ran", func() bool {
		raw, _ := os.ReadFile(heard)
		return strings.Contains(string(raw), string(page.Checkpoints[1].ID)) && strings.Contains(string(raw), `"trigger":"turn"`)
	})
	if taken := logged[holdfast.SnapshotTaken](t, c, ses.ID, holdfast.EventSnapshotTaken); len(taken) != 1 {
		t.Errorf("snapshots %+v, want that of the turn which changed files", taken)
	}
}

// TestASH4_RewindAndFork: after a rewind, and in a fork, the next request to the model has the conversation of
// the checkpoint, and the files are those of then. A rewind to the checkpoint of before undoes it.
//
// ASH-11.
func TestASH4_RewindAndFork(t *testing.T) {
	for _, runtime := range []string{"native", "claude"} {
		t.Run(runtime, func(t *testing.T) {
			t.Setenv("ANTHROPIC_API_KEY", "key")
			l, err := double.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			model := double.Serve(l, double.Config{})
			t.Cleanup(func() { _ = model.Close() })
			cfg := settings(t, "local")
			if runtime == "claude" {
				cfg = claudeSettings(t)
			}
			cfg.Models.Anthropic.URL, cfg.DefaultModel = model.URL(), "anthropic/claude-canary"
			c, _ := serve(t, cfg)
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Runtime: runtime}, "")
			if err != nil {
				t.Fatal(err)
			}
			write := func(id holdfast.SessionID, what string) {
				turn(t, c, id, `<script>[{"tool":"Bash","input":{"command":"echo `+what+` >> a"}},{"say":"wrote `+what+`"}]</script>`)
			}
			holds := func(id holdfast.SessionID, want string) {
				t.Helper()
				res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Argv: []string{"cat", "a"}})
				if err != nil || string(res.Stdout) != want {
					t.Errorf("a holds %q, want %q: %v", res.Stdout, want, err)
				}
			}
			wants := func(id holdfast.SessionID, file string, knows, forgot string) {
				t.Helper()
				holds(id, file)
				before := len(model.Requests())
				turn(t, c, id, "What do you remember?")
				asked := slices.DeleteFunc(model.Requests()[before:], func(r double.Request) bool {
					return !strings.Contains(string(r.Body), "What do you remember")
				})
				if len(asked) == 0 {
					t.Error("the model got no request")
				}
				for _, r := range asked {
					if !strings.Contains(string(r.Body), knows) || strings.Contains(string(r.Body), forgot) {
						t.Errorf("the model should know %q and not %q: it got %s", knows, forgot, r.Body)
					}
				}
			}
			write(ses.ID, "first")
			write(ses.ID, "second")
			page, err := c.Checkpoints(t.Context(), ses.ID, "", 0)
			if err != nil || len(page.Checkpoints) < 2 {
				t.Fatalf("%+v, %v", page, err)
			}
			one := page.Checkpoints[len(page.Checkpoints)-1].ID

			fork, err := c.Fork(t.Context(), ses.ID, holdfast.ForkSession{At: one}, "")
			if err != nil {
				t.Fatal(err)
			}
			wants(fork.ID, "first\n", "wrote first", "wrote second")
			write(fork.ID, "other")

			back, err := c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: one})
			if err != nil {
				t.Fatal(err)
			}
			wants(ses.ID, "first\n", "wrote first", "wrote second")
			if _, err := c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: back.Rewound.Kept}); err != nil {
				t.Fatal(err)
			}
			wants(ses.ID, "first\nsecond\n", "wrote second", "wrote other")
			holds(fork.ID, "first\nother\n")
		})
	}
}
