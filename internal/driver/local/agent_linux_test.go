package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/sandbox"
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
