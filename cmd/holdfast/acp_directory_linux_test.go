package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// project makes a directory of a user of this machine, who is never root, with one file.
func project(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	dir := filepath.Join(top, "project")
	for _, above := range []string{top, filepath.Dir(top)} {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	give(t, dir)
	return dir
}

// give makes a user who is not root the owner of a directory and of what is in it.
func give(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	if out, err := exec.Command("chown", "-R", "1000:1000", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// giveRoot makes root the owner of a directory and of what is in it.
func giveRoot(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root has directories of root")
	}
	if out, err := exec.Command("chown", "-R", "root:root", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestACPWorksInTheEditorsDirectory: the agent edits the editor's own file, the editor shows the edit as a difference in
// that file before it is allowed and after, and again when the thread is loaded after both were killed.
func TestACPWorksInTheEditorsDirectory(t *testing.T) {
	t.Run("of a user", func(t *testing.T) { acpInDirectory(t, project(t)) })
	t.Run("of root", func(t *testing.T) {
		dir := project(t)
		giveRoot(t, dir)
		acpInDirectory(t, dir, "--set", "allow_root_trees=true")
	})
}

// acpInDirectory edits a file of an editor's directory. args are those of the server.
func acpInDirectory(t *testing.T, dir string, args ...string) {
	t.Helper()
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted, args...)
	var was, now syscall.Stat_t
	if err := syscall.Lstat(dir, &was); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "main.go")
	d := p.editHere()
	made, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	if made.Modes.CurrentModeId != "default" {
		t.Errorf("mode %s: in a directory of the user's own, a person is asked", made.Modes.CurrentModeId)
	}
	d.answering("allow_once")
	edit := `<script>[{"tool":"Read","input":{"file_path":"main.go"}},{"tool":"Edit","input":{"file_path":"/workspace/main.go","old_string":"package main","new_string":"package other"}},{"say":"done"}]</script>`
	d.ask(made.SessionId, edit)
	if b, err := os.ReadFile(file); err != nil || string(b) != "package other\n" {
		t.Errorf("the editor's file is %q, %v", b, err)
	}
	if err := syscall.Lstat(file, &now); err != nil || now.Uid != was.Uid || now.Gid != was.Gid {
		t.Errorf("the editor's file belongs to %d:%d, %v", now.Uid, now.Gid, err)
	}
	change := func(content []acp.ToolCallContent) string {
		for _, c := range content {
			if c.Diff != nil && c.Diff.OldText != nil {
				return fmt.Sprintf("%s: %s -> %s", c.Diff.Path, *c.Diff.OldText, c.Diff.NewText)
			}
		}
		return "none"
	}
	want := file + ": package main -> package other"
	d.mu.Lock()
	if len(d.asked) != 1 || change(d.asked[0].ToolCall.Content) != want || len(d.asked[0].ToolCall.Locations) != 1 || d.asked[0].ToolCall.Locations[0].Path != file {
		t.Errorf("asked %+v; want the difference %s", d.asked, want)
	}
	d.mu.Unlock()
	shown := func(d *editor) (starts, ends int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, u := range d.updates {
			if s := u.Update.ToolCall; s != nil && change(s.Content) == want && len(s.Locations) == 1 && s.Locations[0].Path == file {
				starts++
			}
			if e := u.Update.ToolCallUpdate; e != nil && e.Status != nil && *e.Status == acp.ToolCallStatusCompleted && change(e.Content) == want {
				ends++
			}
		}
		return starts, ends
	}
	if s, e := shown(d); s != 1 || e != 1 {
		t.Errorf("the edit was shown %d times at its start and %d at its end", s, e)
	}
	d.kill()
	p.kill()
	<-p.done
	p = launchOn(t, p.data, "local", holdfast.Untrusted, args...)
	again := p.editHere()
	if _, err := again.conn.LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: made.SessionId, Cwd: dir, McpServers: []acp.McpServer{}}); err != nil {
		t.Fatal(err)
	}
	if s, e := shown(again); s != 1 || e != 1 {
		t.Errorf("after a load the edit is shown %d times at its start and %d at its end", s, e)
	}
}
