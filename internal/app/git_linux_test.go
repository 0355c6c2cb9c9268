package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestHZ8_GitOfALentDirectory: in a directory of the user's own the agent cannot write .git. So it cannot make the user's git
// read another configuration, by commondir, by a submodule or by a file .git. The workspace's settings can allow it.
func TestHZ8_GitOfALentDirectory(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	evil := `config core.fsmonitor "touch $PWD/evil; true"`
	tree, linked := ownRepository(t), ownRepository(t)
	if err := os.RemoveAll(filepath.Join(linked, ".git")); err != nil {
		t.Fatal(err)
	}
	pointer := filepath.Join(linked, ".git") // as in a worktree
	if err := os.WriteFile(pointer, []byte("gitdir: "+filepath.Join(tree, ".git")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", "--reference="+linked, pointer).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	git := func(dir string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", dir}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, dir := range []string{tree, linked} {
		before := git(dir, "status", "--short", "sub")
		ses := inOwnDir(t, c, dir)
		turn(t, c, ses.ID, inBash(`cp -r .git/. c; echo c > .git/commondir; mkdir -p .git/c .git/modules/m .git/worktrees/w; `+
			`echo "gitdir: c" > .git; echo x > .git/HEAD; rm -rf .git; mv .git gone; `+
			`mkdir deep && cd deep && git init -q && git `+evil+` && cd .. && git add deep; true`))
		if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
			t.Fatal(err)
		}
		if after := git(dir, "status", "--short", "sub"); after != before {
			t.Errorf("git of the host says %q, before the turn %q", after, before)
		}
		git(dir, "status")
		if _, err := os.Lstat(filepath.Join(dir, "deep/evil")); err == nil {
			t.Error("git of the host ran a program of the agent")
		}
	}

	ses := inOwnDir(t, c, tree)
	const commit = `git add sub; git -c user.name=a -c user.email=a@example.com commit -qm one; git ` + `config a.b c; git log --format=%s`
	turn(t, c, ses.ID, inBash(commit))
	if got := outcome(t, c, ses.ID).Content; !strings.Contains(got, "Read-only file system") || strings.HasSuffix(strings.TrimSpace(got), "one") {
		t.Errorf("a commit: %q", got)
	}
	allow := map[string][]string{"allow": {"Edit(.git/**)"}}
	if _, err := c.UpdateWorkspace(t.Context(), ses.Workspace, holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Permissions: allow}}); err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, inBash(commit))
	if got := outcome(t, c, ses.ID).Content; !strings.HasSuffix(strings.TrimSpace(got), "one") {
		t.Errorf("a commit that the settings allow: %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(tree, ".git/config")); err != nil || strings.Contains(string(b), "[a]") {
		t.Errorf(".git/config is %q, %v", b, err)
	}
}
