package app_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// filesBelow returns the content of each file below a directory.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkpoints waits until a session has a number of checkpoints, and returns them, newest first.
func checkpoints(t *testing.T, c *client.Client, id holdfast.SessionID, n int) (list []holdfast.Checkpoint) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d checkpoints", n), func() bool {
		page, err := c.Checkpoints(t.Context(), id, "", 0)
		list = page.Checkpoints
		return err == nil && len(list) >= n && len(logged[holdfast.SnapshotTaken](t, c, id, holdfast.EventSnapshotTaken)) >= n
	})
	return list
}

// TestASH7_WorkspaceDeleted: if the files of a session are deleted, a resume brings back all of them before a
// box starts, and the agent knows the earlier turns. The same holds after a restart of the server.
//
// DOC-3, DOC-6, DOC-7, DOC-8, DOC-18, DOC-20, DOC-36.
func TestASH7_WorkspaceDeleted(t *testing.T) {
	t.Run("native", func(t *testing.T) { wantRestored(t, settings(t, "local"), "native", false) })
	t.Run("native, restart", func(t *testing.T) { wantRestored(t, settings(t, "local"), "native", true) })
	t.Run("claude, restart", func(t *testing.T) { wantRestored(t, claudeSettings(t), "claude", true) })
}

func wantRestored(t *testing.T, cfg config.Config, runtime string, restart bool) {
	p := newProvider(t, "key")
	cfg.Models.Anthropic.URL, cfg.OnShutdown = p.url, config.ShutdownStop
	c, stop := serve(t, cfg)
	if _, err := c.DeployAgent(t.Context(), "pilot", tarOf(
		t, entry{name: "CLAUDE.md", data: "You fly apollo."}, entry{name: "kept.txt", data: "of the agent"}, entry{name: "removed.txt", data: "x"},
		entry{name: "holdfast.yaml", data: "runtime: " + runtime + "\nmodel: anthropic/claude-canary\n"},
	)); err != nil {
		t.Fatal(err)
	}
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "pilot"}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, s.ID, script(bashCall("rm removed.txt; mkdir -p made ~/.claude; echo of the turn > made/f; echo of the home > ~/.claude/f")))
	checkpoints(t, c, s.ID, 1)
	before := boxOf(t, c, s.ID)
	if _, err := c.PauseSession(t.Context(), s.ID, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if restart {
		stop()
		c, _ = serve(t, cfg)
	}
	dir := filepath.Join(cfg.Data, "sessions", string(s.ID))
	want, home := filesBelow(t, filepath.Join(dir, "workspace")), filepath.Join(dir, "home", ".claude")
	if want["kept.txt"] != "of the agent" || want["made/f"] != "of the turn\n" || want["removed.txt"] != "" {
		t.Errorf("the turn left %v", want)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	res, err := c.ResumeSession(t.Context(), s.ID, holdfast.ResumeSession{})
	if err != nil || res.Session.Status != holdfast.StatusActive || res.Receipt.Path != "cold" || res.Receipt.Files != holdfast.FilesRestored || len(res.Receipt.Lost) > 0 {
		t.Fatalf("%+v, %+v, %v", res.Session, res.Receipt, err)
	}
	if list, err := c.Containers(t.Context()); err != nil || slices.ContainsFunc(list, func(b holdfast.Container) bool { return b.PID > 0 }) {
		t.Errorf("boxes before the first use: %+v, %v", list, err)
	}
	if d := cmp.Diff(want, filesBelow(t, filepath.Join(dir, "workspace"))); d != "" {
		t.Errorf("the workspace: %s", d)
	}
	if got := filesBelow(t, home)["f"]; got != "of the home\n" {
		t.Errorf("the home has %q", got)
	}
	if got := execute(t, c, s.ID, "cat made/f kept.txt ~/.claude/f; ls"); got != "of the turn\nof the agentof the home\nCLAUDE.md\nholdfast.yaml\nkept.txt\nmade\n" {
		t.Errorf("the box has %q", got)
	}
	if pid := boxOf(t, c, s.ID); pid == before {
		t.Errorf("the box is still process %d", pid)
	}
	asked := len(p.Requests())
	turn(t, c, s.ID, "What do you remember?")
	if now := p.Requests()[asked:]; len(now) == 0 || !strings.Contains(string(now[len(now)-1].Body), "made/f") {
		t.Errorf("the model does not hear of the first turn: %d requests", len(now))
	}
	if runtime == "claude" {
		all := logged[holdfast.AgentStarted](t, c, s.ID, holdfast.EventAgentStarted)
		if got := all[len(all)-1]; len(all) != 2 || got.Tier != holdfast.TierOwn || got.Turns != 1 {
			t.Errorf("agents %+v", all)
		}
	}
}

// TestDOC10_PauseKeepsFiles: what was changed just before a pause is in a checkpoint, although no turn follows. A
// deleted session leaves nothing of its checkpoints.
//
// DOC-27.
func TestDOC10_PauseKeepsFiles(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	id := newSession(t, c, "untrusted")
	execute(t, c, id, "echo by hand > f")
	if _, err := c.PauseSession(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	page, err := c.Checkpoints(t.Context(), id, "", 0) // the answer to the pause came after its snapshot
	if err != nil || len(page.Checkpoints) != 1 || page.Checkpoints[0].Files == 0 || page.Checkpoints[0].Workspace == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	if err := os.RemoveAll(filepath.Join(cfg.Data, "sessions", string(id))); err != nil {
		t.Fatal(err)
	}
	if res, err := c.ResumeSession(t.Context(), id, holdfast.ResumeSession{}); err != nil || res.Receipt.Files != holdfast.FilesRestored {
		t.Fatalf("%+v, %v", res.Receipt, err)
	}
	if got := execute(t, c, id, "cat f"); got != "by hand\n" {
		t.Errorf("f holds %q", got)
	}
	packs := func() (n int) {
		for _, text := range filesBelow(t, filepath.Join(cfg.Data, "snapshots")) {
			if strings.Trim(text, "\x00") != "" { // the others are spare files, which come and go
				n++
			}
		}
		return n
	}
	kept := packs()
	if err := c.DeleteSession(t.Context(), id, holdfast.EndSession{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if left := packs(); kept == 0 || left > 0 {
		t.Errorf("%d packs, and %d after the session was deleted", kept, left)
	}
}

// TestDOC10_PauseKeepsWhatProcessesDid: a process that outlived its turn changed a file before the pause.
func TestDOC10_PauseKeepsWhatProcessesDid(t *testing.T) {
	cfg := settings(t, "local")
	c, _ := serve(t, cfg)
	id := newSession(t, c, "untrusted")
	turn(t, c, id, script(bashCall("(until [ -e go ]; do sleep 0.02; done; echo later > f) >/dev/null 2>&1 &")))
	taken(t, c, id, 1)
	workspace := filepath.Join(cfg.Data, "sessions", string(id), "workspace")
	if err := os.WriteFile(filepath.Join(workspace, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the process has written", func() bool { return filesBelow(t, workspace)["f"] == "later\n" })
	if _, err := c.PauseSession(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	cp := checkpoints(t, c, id, 2)[0]
	r, err := c.ReadFileAt(t.Context(), id, cp.ID, "f")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "later\n" || cp.Reason != holdfast.CheckpointStop {
		t.Errorf("checkpoint %+v has %q, %v", cp, got, err)
	}
}

// TestActiveSessionsGetTheirFilesBack: the files of a session that nobody paused are gone, as in a restored data directory.
// A command and a turn have them again.
func TestActiveSessionsGetTheirFilesBack(t *testing.T) {
	cfg := settings(t, "local")
	cfg.OnShutdown = config.ShutdownStop
	c, stop := serve(t, cfg)
	ids := []holdfast.SessionID{writes(t, c, "a"), writes(t, c, "a")}
	stop()
	for _, id := range ids {
		if err := os.RemoveAll(filepath.Join(cfg.Data, "sessions", string(id))); err != nil {
			t.Fatal(err)
		}
	}
	c, _ = serve(t, cfg)
	if got := execute(t, c, ids[0], "cat a"); got != "content of a\n" {
		t.Errorf("a command finds %q", got)
	}
	turn(t, c, ids[1], script(bashCall("cat a >> b")))
	if got := execute(t, c, ids[1], "cat b"); got != "content of a\n" {
		t.Errorf("a turn found %q", got)
	}
	for _, id := range ids {
		receipts := logged[holdfast.Receipt](t, c, id, holdfast.EventSessionResumed)
		if len(receipts) != 1 || receipts[0].From != holdfast.StatusActive || receipts[0].Files != holdfast.FilesRestored {
			t.Errorf("receipts %+v", receipts)
		}
	}
}
