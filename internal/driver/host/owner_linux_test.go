package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

// The owner of a workspace in these tests: no user of the machine.
const ownerUID, ownerGID = 1_870_000_001, 1_870_000_002

// ownTree returns the spec of a box in a workspace that the server made, and that belongs to the owner.
func ownTree(t *testing.T, home string) sandbox.Spec {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only a root server runs boxes as another user")
	}
	s := spec(home, "a")
	s.Workspace, s.ToolUID, s.ToolGID = filepath.Join(home, "workspaces", "site", "tree"), ownerUID, ownerGID
	if err := os.MkdirAll(s.Workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(s.Workspace, ownerUID, ownerGID); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWSR17_ATrustedBoxIsTheOwner: a root server's box in a workspace has the uid and gid of the workspace's owner, no
// other groups, no capabilities and no way to any; its home is the owner's, and the paths are those of the host.
func TestWSR17_ATrustedBoxIsTheOwner(t *testing.T) {
	home := dataDir(t)
	s := ownTree(t, home)
	b := box(t, open(t, home), s)
	status := sh(t, b, "cat /proc/self/status")
	for _, want := range []string{
		"Uid:\t1870000001\t1870000001\t1870000001\t1870000001", "Gid:\t1870000002\t1870000002\t1870000002\t1870000002", "Groups:\t \n",
		"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if got := sh(t, b, `pwd; echo "$HOME"; echo "$TMPDIR"; echo "[$USER]"; echo x > file; echo x > ~/file; mktemp > /dev/null; cat file`); got != strings.Join([]string{s.Workspace, filepath.Join(s.Dir, "home"), filepath.Join(s.Dir, "tmp"), "[]", "x"}, "\n") {
		t.Errorf("the box says %q", got)
	}
	for _, path := range []string{filepath.Join(s.Workspace, "file"), filepath.Join(s.Dir, "home"), filepath.Join(s.Dir, "home", "file"), filepath.Join(s.Dir, "tmp"), filepath.Join(s.Dir, "state.host")} {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil || st.Uid != ownerUID || st.Gid != ownerGID {
			t.Errorf("%s belongs to %d:%d, %v", path, st.Uid, st.Gid, err)
		}
	}
	info, err := open(t, home).List(t.Context())
	if err != nil || len(info) != 1 || !strings.Contains(strings.Join(info[0].Missing, "\n"), "everything uid 1870000001 can do") {
		t.Errorf("the box says of itself %+v, %v", info, err)
	}
}

// TestWSR17_TheOwnerIsNotRoot: processes of such a box reach nothing of the data directory but their own directories, read
// no file of root, signal and trace no process of root, and become root by no program. The host sees none of the
// box's mounts.
func TestWSR17_TheOwnerIsNotRoot(t *testing.T) {
	home := dataDir(t)
	s := ownTree(t, home)
	for path, mode := range map[string]os.FileMode{"token": 0o600, "open": 0o644, "sessions/b/home/file": 0o644} {
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("secret of root"), mode); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(testkit.BaseDir(t), "outside")
	if err := os.WriteFile(outside, []byte("secret of root"), 0o600); err != nil {
		t.Fatal(err)
	}
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	pid := strconv.Itoa(victim.Process.Pid)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	b := box(t, open(t, home), s)
	for what, command := range map[string]string{
		"the token":                  "cat " + filepath.Join(home, "token"),
		"a file that all may read":   "cat " + filepath.Join(home, "open"),
		"another session's home":     "cat " + filepath.Join(home, "sessions/b/home/file"),
		"the records of boxes":       "ls " + filepath.Join(home, "run/host"),
		"a directory beside its own": "touch " + filepath.Join(s.Dir, "new"),
		"a directory above its tree": "touch " + filepath.Join(filepath.Dir(s.Workspace), "new"),
		"its tree, moved away":       "mv " + s.Workspace + " " + s.Workspace + ".away",
		"a file of root":             "cat " + outside,
		"the environment of root":    "cat /proc/" + pid + "/environ",
		"the root of root's process": "ls /proc/" + pid + "/root/" + home,
		"a process of root":          "kill -0 " + pid,
		"the server":                 "kill -0 " + strconv.Itoa(os.Getpid()),
		"the server's memory":        "head -c 1 /proc/" + strconv.Itoa(os.Getpid()) + "/mem",
		"the password file":          "cat /etc/shadow",
		"the mount over the data":    "umount -l " + home,
		"a mount":                    "mount -t tmpfs none /mnt",
		"the owner of a file":        "touch mine && chown 0 mine",
		"su":                         "su -c true </dev/null",
	} {
		if got := sh(t, b, "if "+command+" >/dev/null 2>&1; then echo REACHED; else echo refused; fi"); got != "refused" {
			t.Errorf("%s (%s): %s", what, command, got)
		}
	}
	if got := sh(t, b, `cp /bin/cat own && chmod 4755 own && ./own /proc/self/status | grep -c '^Uid:.1870000001'`); got != "1" {
		t.Errorf("a set-uid program of its own: %s", got)
	}
	now, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || string(now) != string(mounts) {
		t.Errorf("the host's mounts changed: %v\n%s\nwere\n%s", err, now, mounts)
	}
	if _, err := os.ReadFile(filepath.Join(home, "token")); err != nil {
		t.Error(err)
	}
}

// TestWSR17_NoBoxAsRootInAWorkspace: a root server starts no box in a workspace without a user for it, nor in a tree that
// belongs to another user, that is missing, or that its owner cannot enter. Nothing is left of the tries.
func TestWSR17_NoBoxAsRootInAWorkspace(t *testing.T) {
	home := dataDir(t)
	d := open(t, home)
	good := ownTree(t, home)
	lent := filepath.Join(t.TempDir(), "closed", "lent")
	if err := os.MkdirAll(lent, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(lent, ownerUID, ownerGID); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		kind   holdfast.Kind
		says   string
	}{
		"no user":       {func(s *sandbox.Spec) { s.ToolUID, s.ToolGID = 0, 0 }, holdfast.KindDenied, "never run as root"},
		"a lent one":    {func(s *sandbox.Spec) { s.ToolUID, s.Workspace, s.HostUser = 0, lent, true }, holdfast.KindDenied, "never run as root"},
		"another owner": {func(s *sandbox.Spec) { s.ToolUID = ownerUID + 5 }, holdfast.KindInvalid, "belongs to uid 1870000001"},
		"no tree":       {func(s *sandbox.Spec) { s.Workspace += "x" }, holdfast.KindNotFound, "does not exist"},
		"a closed path": {func(s *sandbox.Spec) { s.Workspace, s.HostUser = lent, true }, holdfast.KindUnavailable, "cannot enter that directory"},
		"a symlink":     {func(s *sandbox.Spec) { s.Workspace = link(t, s.Workspace) }, holdfast.KindNotFound, "does not exist"},
	} {
		s := good
		c.change(&s)
		_, err := d.Ensure(t.Context(), s)
		if !holdfast.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.says) || holdfast.HintOf(err) == "" && c.kind != holdfast.KindNotFound {
			t.Errorf("%s: %v (hint %q)", name, err, holdfast.HintOf(err))
		}
		if list, err := d.List(t.Context()); err != nil || len(list) > 0 && list[0].Running {
			t.Errorf("%s left %+v, %v", name, list, err)
		}
	}
}

func link(t *testing.T, to string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWSR17_ALentDirectory: the box of a directory of a user's own runs as that user, also after the stop of the
// server, and ends with all its processes.
func TestWSR17_ALentDirectory(t *testing.T) {
	home := dataDir(t)
	s := ownTree(t, home)
	s.Workspace, s.HostUser = filepath.Join(testkit.BaseDir(t), "lent"), true
	if err := os.Mkdir(s.Workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(s.Workspace, ownerUID, ownerGID); err != nil {
		t.Fatal(err)
	}
	first := open(t, home)
	b := box(t, first, s)
	pid := escaped(t, b)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	d := open(t, home)
	if info, err := d.Ensure(t.Context(), s); err != nil || !info.Running {
		t.Fatal(info, err)
	}
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of what escaped", func() bool { return gone(pid) })
}
