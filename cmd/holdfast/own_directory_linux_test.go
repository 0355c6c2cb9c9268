package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// hostGit runs the git of the host in a directory, as its owner.
func hostGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "safe.directory=*", "-c", "user.name=user", "-c", "user.email=user@example.com"}, args...)...)
	var st syscall.Stat_t
	if err := syscall.Lstat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 && st.Uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	cmd.Env = append(cmd.Environ(), "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// fileOf returns the path of a file that the agent does not touch.
func fileOf(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("d%d", i%7), fmt.Sprintf("f%d", i))
}

// TestOwnDirectoryUnderKills: sessions edit a real repository of a user, whose git works in it meanwhile, while the server and
// the box are killed: each acknowledged edit is there once, and inode, owner, mode and content of what nobody edited stay.
func TestOwnDirectoryUnderKills(t *testing.T) {
	testkit.Long(t)
	t.Run("of a user", func(t *testing.T) {
		dir := project(t)
		underKills(t, dir, func() { give(t, dir) })
	})
	t.Run("of root", func(t *testing.T) {
		dir := project(t)
		underKills(t, dir, func() { giveRoot(t, dir) }, "--set", "allow_root_trees=true")
	})
}

// underKills makes a repository in a directory and then gives it to its owner. args are those of the server.
func underKills(t *testing.T, dir string, own func(), args ...string) {
	t.Helper()
	serve := func(data string) *process { return launchOn(t, data, "local", holdfast.Untrusted, args...) }
	for i := range 200 {
		path := fileOf(dir, i)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(fmt.Sprintln("file", i)), os.FileMode(0o600+i%8)); err != nil {
			t.Fatal(err)
		}
	}
	own()
	hostGit(t, dir, "init", "-q")
	hostGit(t, dir, "add", "-A")
	hostGit(t, dir, "commit", "-qm", "all")
	was := map[string]syscall.Stat_t{}
	look := func(path string) (st syscall.Stat_t) {
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		st.Atim, st.Blocks = syscall.Timespec{}, 0
		return st
	}
	for i := range 200 {
		was[fileOf(dir, i)] = look(fileOf(dir, i))
	}
	p := serve(filepath.Join(testkit.BaseDir(t), "data"))
	ses, err := p.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		command := fmt.Sprintf("echo line %d >> log; echo %d > edited; sleep 0.0%d", n, n, n%5)
		turn := p.say(ses.ID, fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":%q}},{"tool":"Write","input":{"file_path":"written","content":"%d"}},{"say":"done"}]</script>`, command, n))
		if turn.Status != holdfast.TurnCompleted {
			t.Fatalf("turn %d: %+v", n, turn)
		}
		// The next turn begins, and is cut off.
		if _, err := p.Send(t.Context(), ses.ID, holdfast.SendMessage{Text: `<script>[{"tool":"Bash","input":{"command":"true"}},{"say":"cut"}]</script>`}); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			p.kill()
			p = serve(p.data)
		} else {
			p.killBox(ses.ID)
		}
		hostGit(t, dir, "status", "--short")
		if n%5 == 4 {
			hostGit(t, dir, "add", "log")
			hostGit(t, dir, "commit", "-qm", fmt.Sprint("log ", n))
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if got := strings.Count(string(b), fmt.Sprintf("line %d\n", n)); got != 1 {
			t.Errorf("line %d is there %d times", n, got)
		}
	}
	for path, st := range was {
		if now := look(path); now != st {
			t.Errorf("%s changed: %+v, was %+v", path, now, st)
		}
	}
	for _, name := range []string{"log", "edited", "written"} {
		if st := look(filepath.Join(dir, name)); st.Uid != look(dir).Uid {
			t.Errorf("%s belongs to uid %d", name, st.Uid)
		}
	}
	if out := hostGit(t, dir, "fsck", "--strict"); strings.Contains(out, "error") {
		t.Errorf("git fsck: %s", out)
	}
}
