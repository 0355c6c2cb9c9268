package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestWSR51_ClaudeSharesAWorkspace: two sessions of the real CLI work in one box, which is killed between their turns. Each goes on
// from its own transcript, in a home of its own, and its model is asked with its own turns alone (WS-R51, WS-R72).
func TestWSR51_ClaudeSharesAWorkspace(t *testing.T) {
	testkit.Long(t)
	r := newClaudeRig(t)
	if _, err := r.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	var both [2]*claudeSession
	for i := range both {
		s, err := r.CreateSession(t.Context(), holdfast.CreateSession{Runtime: "claude", Model: claudeModel, Workspace: "site"}, "")
		if err != nil {
			t.Fatal(err)
		}
		both[i] = &claudeSession{r, t, s.ID}
	}
	text := func(i, turn int) string { return fmt.Sprintf("session-%d-turn-%d", i, turn) }
	for turn := range 3 {
		for i, s := range both {
			s.say(fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"echo %s >> common; echo %[1]s > ~/mine; cat ~/mine"}},{"say":"said %[1]s"}]</script>`, text(i, turn)))
			if turn == 0 {
				continue
			}
			if got := s.receipt(); got.Tier != holdfast.TierOwn {
				t.Errorf("session %d, turn %d: %+v; want the agent's own transcript", i, turn, got)
			}
			if asked := s.asked(text(i, turn)); !strings.Contains(asked, text(i, turn-1)) || strings.Contains(asked, text(1-i, turn-1)) {
				t.Errorf("session %d, turn %d: the model was not asked with the session's own turns alone", i, turn)
			}
		}
		list, err := r.Containers(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != "w-site" {
			t.Fatalf("boxes %+v, %v; want the workspace's", list, err)
		}
		if err := syscall.Kill(list[0].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(r.data, "workspaces", "site", "files", "common"))
	if err != nil || strings.Count(string(b), "\n") != 6 {
		t.Errorf("the common file is %q, %v", b, err)
	}
	for i, s := range both {
		var own string
		found := testkit.Glob(r.data, "sessions/"+string(s.id)+"/home/.claude/projects/-workspace/*.jsonl")
		if len(found) != 1 {
			t.Fatalf("session %d has the transcripts %v", i, found)
		}
		if b, err := os.ReadFile(found[0]); err == nil {
			own = string(b)
		}
		if !strings.Contains(own, text(i, 2)) || strings.Contains(own, text(1-i, 0)) {
			t.Errorf("the transcript of session %d is not its own", i)
		}
	}
}
