package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
)

// TestHZ8_SessionsInATreeOfRoot: with the setting, sessions of a root server work in a directory of root's: without an id of
// root's, and what they and a rewind write is root's, without set-uid bits. A checkpoint brings none back. Without the
// setting such a directory is refused, and so are sessions that have one.
func TestHZ8_SessionsInATreeOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's server has directories of root")
	}
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	dir := ownRepository(t)
	if out, err := exec.Command("chown", "-R", "root:root", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kept := statOf(t, filepath.Join(dir, "sub/kept"))
	refused := func(what string, err error) {
		t.Helper()
		if !holdfast.IsKind(err, holdfast.KindDenied) || !strings.Contains(holdfast.HintOf(err), "allow_root_trees") {
			t.Errorf("%s: %v (hint: %s)", what, err, holdfast.HintOf(err))
		}
	}
	_, err := c.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir}, "")
	refused("without the setting", err)
	stop()
	cfg.Root.Trees = config.True
	c, stop = serve(t, cfg)
	ses, two := inOwnDir(t, c, dir), inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash(`echo one > edited; chmod 750 edited; echo x > .git/hooks/pre-commit; git add edited && git -c user.name=a -c user.email=a@example.com commit -qm one; id -u; cat /proc/self/uid_map; true`))
	got := outcome(t, c, ses.ID).Content
	for l := range strings.Lines(got) {
		if f := strings.Fields(l); len(f) == 3 && f[1] == "0" {
			t.Errorf("the box maps root of the host: %q", got)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git/hooks/pre-commit")); err == nil {
		t.Error("the agent made a git hook")
	}
	turn(t, c, two.ID, inBash(`cat edited && echo two > edited && chmod u+s edited; mkdir -m 2755 d; true`))
	// The host's user sets the set-uid bit of a file. The next checkpoint records the bit; a rewind to it does not set it.
	edited := filepath.Join(dir, "edited")
	if err := os.Chmod(edited, 0o750|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	turn(t, c, two.ID, inBash(`true`))
	if err := os.Chmod(edited, 0o750); err != nil {
		t.Fatal(err)
	}
	three := inOwnDir(t, c, dir)
	turn(t, c, three.ID, inBash(`echo first > mine; chmod 700 mine`))
	one := checkpoints(t, c, three.ID, 1)[0].ID
	turn(t, c, three.ID, inBash(`echo second > mine`))
	if _, err := c.Rewind(t.Context(), three.ID, holdfast.RewindSession{To: one, Files: "restore"}); err != nil {
		t.Errorf("a rewind: %v (hint: %s)", err, holdfast.HintOf(err))
	}
	if b, err := os.ReadFile(filepath.Join(dir, "mine")); err != nil || string(b) != "first\n" {
		t.Errorf("after the rewind: %q, %v", b, err)
	}
	for _, name := range []string{"edited", "mine", ".git/HEAD", "."} {
		if st := statOf(t, filepath.Join(dir, name)); st.Uid != 0 || st.Gid != 0 || st.Mode&0o6000 != 0 {
			t.Errorf("%s belongs to %d:%d and has the mode %o", name, st.Uid, st.Gid, st.Mode)
		}
	}
	now := statOf(t, filepath.Join(dir, "sub/kept"))
	if now.Atim = kept.Atim; *now != *kept {
		t.Errorf("a file that nobody touched changed: %+v, was %+v", now, kept)
	}
	fork, err := c.Fork(t.Context(), three.ID, holdfast.ForkSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, fork.ID, inBash(`cat mine && echo own > mine`))
	if got := outcome(t, c, fork.ID).Content; !strings.Contains(got, "first") {
		t.Errorf("a fork, in files of its own: %q", got)
	}
	stop()
	cfg.Root.Trees = "false"
	c, _ = serve(t, cfg)
	_, err = c.Exec(t.Context(), ses.ID, holdfast.ExecRequest{Command: "true"})
	refused("after the setting is gone", err)
}
