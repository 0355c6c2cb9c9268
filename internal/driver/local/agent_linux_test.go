package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestAnyAgentDirectory: a box shows what its agent brings, and nothing in the box changes
// it or puts something else in its place. A ready boot, which has its mounts already, is not
// taken for such a box.
func TestAnyAgentDirectory(t *testing.T) {
	dir := home(t)
	brought := filepath.Join(dir, "brought")
	if err := os.MkdirAll(filepath.Join(brought, "skills"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(brought, "skills", "a")
	if err := os.WriteFile(file, []byte("of the version"), 0o444); err != nil {
		t.Fatal(err)
	}
	// Its modes would let anybody write.
	for at, mode := range map[string]os.FileMode{brought: 0o777, filepath.Dir(file): 0o777, file: 0o666} {
		if err := os.Chmod(at, mode); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, dir, bestEffort)
	prewarm(t, d, 1)
	ready := pids(t, dir)
	s := spec(dir, "agent")
	s.Agent = brought
	s, info := upReady(t, d, s)
	if len(ready) != 1 || info.PID == ready[0] {
		t.Errorf("the box is process %d, ready was %v", info.PID, ready)
	}
	b := dial(t, d, s.Box)
	defer b.Close()
	if got := sh(t, b, "cat "+sandbox.AgentDir+"/skills/a"); got != "of the version" {
		t.Errorf("the box shows %q", got)
	}
	// Where the kernel has no Landlock, the mount alone holds.
	mount := strings.Fields(sh(t, b, "grep ' "+sandbox.AgentDir+" ' /proc/self/mountinfo"))
	if len(mount) < 6 || !strings.HasPrefix(mount[5], "ro,") || !strings.Contains(mount[5], "noexec") || !strings.Contains(mount[5], "nosuid") {
		t.Errorf("the mount is %q", mount)
	}
	tries := `cd ` + sandbox.AgentDir + `; n=0; for c in "echo x > skills/a" "echo x > skills/b" "mkdir hooks" "rm -f skills/a" "chmod 777 skills/a" \
		"mv ` + sandbox.AgentDir + ` ` + sandbox.AgentDir + `2" "rmdir ` + sandbox.AgentDir + `" "umount ` + sandbox.AgentDir + `" \
		"mount -o remount,rw ` + sandbox.AgentDir + `" "mount -t tmpfs x ` + sandbox.AgentDir + `"; do sh -c "$c" 2>/dev/null && echo "done: $c"; done; cat skills/a; ls . skills`
	if got := sh(t, b, tries); strings.Join(strings.Fields(got), " ") != "of the version.: skills skills: a" {
		t.Errorf("after all of them:\n%s", got)
	}
	// Without one the directory is not there.
	none := spec(dir, "none")
	up(t, d, none)
	other := dial(t, d, none.Box)
	defer other.Close()
	if got := sh(t, other, "ls -A /run/holdfast"); got != "" {
		t.Errorf("a box without an agent's directory shows %q", got)
	}
}

// TestAnySharedAgentDirectories: in a shared box each session has the directory of its own agent, which it cannot change,
// whichever session the box was started for.
func TestAnySharedAgentDirectories(t *testing.T) {
	base := t.TempDir()
	agent := func(name string) string {
		dir := filepath.Join(base, name)
		for _, d := range []string{base, dir} {
			if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		// The mode would let anybody write.
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666), os.Chmod(filepath.Join(dir, name), 0o666)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	w := shareBox(t, func(s *sandbox.Spec) { s.Agent = agent("first") })
	look := "cd " + sandbox.AgentDir + " && ls -A && cat * && for f in *; do echo x > $f; done; touch new"
	for name, m := range map[string]*sandbox.Box{"anna": w.memberWith(agent("anna")), "bert": w.memberWith(agent("bert"))} {
		if got := sh(t, m, "("+look+") 2>/dev/null; cat "+sandbox.AgentDir+"/*"); got != name+"\n"+name+name {
			t.Errorf("%s sees %q", name, got)
		}
		if _, err := m.Stat(t.Context(), wire.PathRequest{Path: sandbox.AgentDir + "/" + name}); err != nil {
			t.Errorf("%s, through boxd: %v", name, err)
		}
		mount := strings.Fields(sh(t, m, "grep ' "+sandbox.AgentDir+" ' /proc/self/mountinfo"))
		if len(mount) < 6 || !strings.HasPrefix(mount[5], "ro,") || !strings.Contains(mount[5], "noexec") || !strings.Contains(mount[5], "nosuid") {
			t.Errorf("the mount is %q", mount)
		}
	}
	if got := sh(t, w.member(), "ls -A /run/holdfast"); got != "" {
		t.Errorf("a session without an agent's directory sees %q", got)
	}
}
