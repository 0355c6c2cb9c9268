package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestCheckpointsHaveNoPlaceholders: while a box runs in a directory of the user's own, there is an empty file where a
// deny rule names what does not exist, and an empty directory HEAD, since the directory is no repository. No checkpoint
// has them, so they are in no difference, hinder no rewind, and come neither back with it nor into a fork.
func TestCheckpointsHaveNoPlaceholders(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	dir := filepath.Join(ownRepository(t), "sub")
	rules := map[string][]string{"deny": {"Edit(./.env)", "Read(./secret/deep/key)"}}
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{
		ID: "part", Dir: dir, WorkspaceSettings: holdfast.WorkspaceSettings{Permissions: rules},
	}); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "part", Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, inBash(`echo two >> kept`))
	for _, name := range []string{".env", "HEAD", "secret/deep/key"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("while the box runs: %v", err)
		}
	}
	turn(t, c, ses.ID, inBash(`echo three >> kept`))
	list, err := c.Checkpoints(t.Context(), ses.ID, "", 0)
	if err != nil || len(list.Checkpoints) < 2 {
		t.Fatal(list, err)
	}
	oldest, first := list.Checkpoints[len(list.Checkpoints)-1], list.Checkpoints[1]
	var names strings.Builder
	if _, err := c.DiffCheckpoints(t.Context(), ses.ID, holdfast.CompareCheckpoints{From: oldest.ID, Format: holdfast.DiffNames}, &names); err != nil ||
		strings.TrimSpace(names.String()) != "kept" {
		t.Errorf("the difference of the checkpoints: %q, %v; want only kept", names.String(), err)
	}
	if _, err := c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: first.ID, Files: "restore"}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(b) != "one\ntwo\n" {
		t.Errorf("after the rewind kept is %q, %v", b, err)
	}
	if out, err := exec.Command("find", dir, "-mindepth", "1", "-printf", "%P\n").Output(); err != nil || string(out) != "kept\n" {
		t.Errorf("after the rewind the directory has %q, %v; want only kept", out, err)
	}
	if _, err := c.UpdateWorkspace(t.Context(), "part", holdfast.UpdateWorkspace{
		WorkspaceSettings: holdfast.WorkspaceSettings{Permissions: map[string][]string{"deny": {}}},
	}); err != nil {
		t.Fatal(err)
	}
	fork, err := c.Fork(t.Context(), ses.ID, holdfast.ForkSession{At: first.ID}, "")
	if err != nil {
		t.Fatal(err)
	}
	if out := execute(t, c, fork.ID, "ls -A"); out != "kept\n" {
		t.Errorf("without the rules the fork has %q; want only kept", out)
	}
}
