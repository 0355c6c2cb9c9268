package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	brought "github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
)

// screening is a puppet that shows its turns, and refuses messages.
type screening struct {
	*puppet
	turns chan runtime.Turn
}

func (s *screening) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	s.turns <- t
	return s.puppet.Run(ctx, t, host)
}

func (s *screening) Screen(text string, f *brought.Folder) error {
	if strings.HasPrefix(text, "/no") && f != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "screen", "no").WithHint("say yes")
	}
	return nil
}

// TestWorkspaceInstructions: what a workspace says to its agent is passed on if the agent's
// version allows it; what the workspace's own settings say about that does not count.
func TestWorkspaceInstructions(t *testing.T) {
	for rule, want := range map[string]bool{"": false, "workspace_instructions: deny": false, "workspace_instructions: allow": true} {
		s := &screening{newPuppet(), make(chan runtime.Turn, 10)}
		w := newWorld(t, s, func(c *engine.Config) {
			c.Agents = folder{files: map[string][]byte{settings.OwnFile: []byte(rule)}}
		})
		id := w.create(holdfast.CreateSession{})
		dir := filepath.Join(w.dir, "sessions", string(id), "workspace")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"AGENTS.md": "REPO-WORDS", settings.OwnFile: "workspace_instructions: allow"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w.send(id, "hi")
		turn := <-s.turns
		if got := strings.Contains(turn.Instructions, "REPO-WORDS"); got != want || !strings.HasPrefix(turn.Instructions, "Be brief.") {
			t.Errorf("%q: the instructions are %q", rule, turn.Instructions)
		}
		if turn.Folder == nil {
			t.Error("a turn without the agent's folder")
		}
	}
}

// TestScreenedMessages: a message that the runtime refuses is not taken.
func TestScreenedMessages(t *testing.T) {
	s := &screening{newPuppet(), make(chan runtime.Turn, 10)}
	w := newWorld(t, s, nil)
	id := w.create(holdfast.CreateSession{})
	_, err := w.Send(t.Context(), id, holdfast.SendMessage{Text: "/no"})
	w.wantKind(err, holdfast.KindInvalid)
	if holdfast.HintOf(err) != "say yes" {
		t.Errorf("hint %q", holdfast.HintOf(err))
	}
	w.send(id, "hi")
	<-s.turns
	for _, ev := range w.log(id) {
		if strings.Contains(string(ev.Data), "/no") {
			t.Errorf("the log has %s", ev.Data)
		}
	}
}
