//go:build linux

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func cgroupRoot(dir string) option { return func(c *local.Config) { c.CgroupRoot = dir } }

// TestLimitsAreInForce reads the limits back from inside and outside.
//
// WS-P11, WS-N8.
func TestLimitsAreInForce(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	needLimits(t, d)
	s := spec(dir, "limits")
	s.Limits = sandbox.Limits{MemoryBytes: 96 << 20, CPUs: 0.5, Pids: 33, NofileSoft: 100, NofileHard: 200, TmpBytes: 3 << 20}
	s.LimitsMode = sandbox.LimitsRequired
	info := up(t, d, s)
	for _, m := range info.Missing {
		if !strings.HasPrefix(m, "disk-limit: ") {
			t.Errorf("missing %s", m)
		}
	}
	b := dial(t, d, s.Box)
	if st, err := b.Stats(t.Context()); err != nil || st.MemoryLimit != 96<<20 || st.PidsLimit != 33 || st.CPUMicros < 0 {
		t.Errorf("%+v %v", st, err)
	}
	if got := sh(t, b, "ulimit -Sn; ulimit -Hn; ulimit -c"); got != "100\n200\n0" {
		t.Errorf("ulimit says %q", got)
	}
	if res, out := try(t, b, wire.ExecRequest{Shell: "head -c 4000000 /dev/zero > /tmp/big"}); res.Class == holdfast.ExitOK || !strings.Contains(out, "No space") {
		t.Errorf("/tmp took more than its size: %+v %s", res, out)
	}
	if got := sh(t, b, "cat /proc/self/oom_score_adj"); got != "700" {
		t.Errorf("a tool's oom_score_adj is %s", got)
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("/proc/" + strconv.Itoa(info.PID) + "/oom_score_adj"); err != nil || string(got) != string(own) {
		t.Errorf("boxd's oom_score_adj is %s (%v), ours %s", got, err, own)
	}
	cg, err := os.ReadFile("/proc/" + strconv.Itoa(info.PID) + "/cgroup")
	if err != nil || !strings.Contains(string(cg), "/w-limits/boxd") || strings.Contains(string(cg), "/work") {
		t.Errorf("boxd's cgroups: %s %v", cg, err)
	}
}

// TestHZ16_LongAndClosedPaths: a data directory of mode 0700 whose sockets are
// far beyond what a socket address holds, and a workspace below another user's
// closed home.
func TestHZ16_LongAndClosedPaths(t *testing.T) {
	dir := filepath.Join(home(t), strings.Repeat("long/", 40), "h")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	s := spec(dir, "long")
	if os.Geteuid() == 0 {
		closed := filepath.Join(dir, "someone")
		s.Workspace = filepath.Join(closed, "project")
		if err := os.MkdirAll(s.Workspace, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{closed, s.Workspace} {
			if err := os.Chown(p, int(s.ToolUID), int(s.ToolUID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := box(t, d, s)
	sh(t, b, "echo hi > file && cat file")
}

// TestAnyBoxOfAnotherProcessIsNotTouched: a record whose pid now belongs to
// somebody else is a dead box, and the somebody lives on.
func TestAnyBoxOfAnotherProcessIsNotTouched(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "reused")
	up(t, d, s)
	records, err := boxproc.Open(filepath.Join(dir, "run", "local"), testkit.Owner(dir))
	if err != nil {
		t.Fatal(err)
	}
	r, err := records.Read(s.Box)
	if err != nil {
		t.Fatal(err)
	}
	real := r.PID
	var other *exec.Cmd
	testkit.Eventually(t, "a process of another clock tick", func() bool {
		other = exec.Command("sleep", "600")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		at, err := boxproc.StartTime(other.Process.Pid)
		if err == nil && at != r.Start {
			return true
		}
		_ = other.Process.Kill()
		_ = other.Wait()
		return false
	})
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	r.PID = other.Process.Pid
	if err := records.Write(r); err != nil {
		t.Fatal(err)
	}
	if infos, err := d.List(t.Context()); err != nil || len(infos) != 0 {
		t.Fatalf("%+v %v", infos, err)
	}
	if os.Geteuid() != 0 {
		// Without a cgroup nothing else than the record leads to the box.
		if err := syscall.Kill(real, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Remove(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process was ended: %v", err)
	}
	testkit.Eventually(t, "the box is gone", func() bool { return len(processesOf(dir)) == 0 })
}

// TestUnreadableRecordIsCleared: a record that was cut is not a reason to leave the
// box it was of.
func TestUnreadableRecordIsCleared(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	needLimits(t, d)
	s := spec(dir, "cut")
	up(t, d, s)
	path := filepath.Join(dir, "run", "local", boxproc.Key(s.Box)+".json")
	if err := os.WriteFile(path, []byte(`{"box":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := len(processesOf(dir)); n != 1 {
		t.Errorf("%d boxds run", n)
	}
	sh(t, dial(t, d, s.Box), "true")
}

// TestRootDirectory: a box made of a directory the operator names, and one more
// directory of the host.
func TestRootDirectory(t *testing.T) {
	dir := home(t)
	root := filepath.Join(dir, "root")
	for _, p := range []string{"bin", "etc", "data"} {
		if err := os.MkdirAll(filepath.Join(root, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(probe(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "probe"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("bin", filepath.Join(root, "sbin")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "opt", "own"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("own", filepath.Join(root, "opt", "link")); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir, func(c *local.Config) {
		c.RootDir, c.ReadOnly = root, []string{"/usr/share", "/usr/share/misc:/opt/misc"}
	})
	b := box(t, d, spec(dir, "root"))
	for _, path := range []string{"/bin/probe", "/sbin/probe"} {
		if res, out := try(t, b, wire.ExecRequest{Argv: []string{path}}); res.Class != holdfast.ExitOK {
			t.Errorf("%s: %+v %s", path, res, out)
		}
	}
	res, err := b.Exec(t.Context(), newCall(t), wire.ExecRequest{Argv: []string{"/usr/bin/env"}}, sandbox.ExecOptions{})
	if err == nil && res.Class == holdfast.ExitOK {
		t.Errorf("a program of the host ran: %+v", res)
	}
	for path, want := range map[string]bool{"/data": true, "/usr/share": true, "/opt/misc": true, "/opt/own": true, "/opt/link": true, "/usr/bin": false} {
		if _, err := b.Stat(t.Context(), wire.PathRequest{Path: path}); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRefusals: what cannot be a configuration or a box is refused with its
// kind, the value, and without a trace.
//
// WS-R4, WS-R8.
func TestRefusals(t *testing.T) {
	good := local.Config{Home: t.TempDir(), Boxd: boxd.Local, Now: time.Now, Rand: strings.NewReader(strings.Repeat("x", 64)), Owner: "0123456789abcdef"}
	for name, change := range map[string]func(*local.Config){
		"no home":       func(c *local.Config) { c.Home = "" },
		"no boxd":       func(c *local.Config) { c.Boxd = nil },
		"no clock":      func(c *local.Config) { c.Now = nil },
		"no randomness": func(c *local.Config) { c.Rand = nil },
		"no owner":      func(c *local.Config) { c.Owner = "" },
		"bad owner":     func(c *local.Config) { c.Owner = "../../etc" },
		"root dir":      func(c *local.Config) { c.RootDir = "relative" },
		"cgroup root":   func(c *local.Config) { c.CgroupRoot = "/a/../b" },
		"read-only":     func(c *local.Config) { c.ReadOnly = []string{"/proc/sys"} },
		"read-only at":  func(c *local.Config) { c.ReadOnly = []string{"/usr/share:/tmp/share"} },
		"read-only dot": func(c *local.Config) { c.ReadOnly = []string{"/usr/share:opt"} },
		"limits":        func(c *local.Config) { c.LimitsMode = "some" },
	} {
		c := good
		change(&c)
		if _, err := local.New(c); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := home(t)
	d := open(t, dir)
	for name, change := range map[string]func(*sandbox.Spec){
		"box id":    func(s *sandbox.Spec) { s.Box = "../x" },
		"directory": func(s *sandbox.Spec) { s.Dir = "relative" },
		"workspace": func(s *sandbox.Spec) { s.Workspace = "/a/../b" },
		"mode":      func(s *sandbox.Spec) { s.LimitsMode = "none" },
	} {
		s := spec(dir, "bad")
		change(&s)
		if _, err := d.Ensure(t.Context(), s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := spec(dir, "bad")
	s.Workspace = filepath.Join(dir, "nothing")
	_, err := d.Ensure(t.Context(), s)
	wantKind(t, err, holdfast.KindNotFound, false)
	s = spec(dir, "link")
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(s.Dir, "home")); err != nil {
		t.Fatal(err)
	}
	_, err = d.Ensure(t.Context(), s)
	wantKind(t, err, holdfast.KindUnavailable, false)
	none := open(t, home(t), func(c *local.Config) {
		c.Boxd = func() (boxd.Program, error) {
			return boxd.Program{}, holdfast.Errorf(holdfast.KindUnavailable, "boxd image", "none").WithHint("run make boxd")
		}
	})
	_, err = none.Ensure(t.Context(), spec(dir, "none"))
	wantKind(t, err, holdfast.KindUnavailable, true)
	if p := none.Probe(t.Context()); p.Usable || p.Hint != "run make boxd" {
		t.Errorf("%+v", p)
	}
	noise := open(t, home(t), func(c *local.Config) {
		c.Boxd = func() (boxd.Program, error) { return boxd.Of([]byte("#!/bin/false\n")), nil }
	})
	_, err = noise.Ensure(t.Context(), spec(dir, "noise"))
	wantKind(t, err, holdfast.KindUnavailable, true)
}

// TestProbesAreNoBoxes: while a probe runs, List does not show what it runs.
func TestProbesAreNoBoxes(t *testing.T) {
	d := open(t, home(t))
	done := make(chan sandbox.Probe, 1)
	go func() { done <- d.Probe(t.Context()) }()
	for {
		list, err := d.List(t.Context())
		if err != nil || len(list) > 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		select {
		case p := <-done:
			if !p.Usable {
				t.Errorf("%+v", p)
			}
			return
		default:
		}
	}
}

// TestEnvironment: the base environment, replaced by name, and nothing of the server's.
//
// WS-R76.
func TestEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir := home(t)
	d := open(t, dir)
	b := box(t, d, spec(dir, "env"))
	b.SetEnv([]string{"LC_CTYPE=de_DE.UTF-8", "MINE=1"})
	out := sh(t, b, "env | sort")
	for _, want := range []string{"HOME=/home/agent", "LC_CTYPE=de_DE.UTF-8", "MINE=1", "TMPDIR=/tmp", "USER=agent", "PATH=/usr/local/sbin:"} {
		if !strings.Contains("\n"+out, "\n"+want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if strings.Contains(out, "secret") || strings.Count(out, "LC_CTYPE=") != 1 {
		t.Errorf("environment:\n%s", out)
	}
}

// TestAnyBoxdThatCannotServeSaysWhy: Ensure fails with what boxd found, and
// leaves no box.
func TestAnyBoxdThatCannotServeSaysWhy(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "state")
	up(t, d, s)
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(s.Dir, "state", "token")
	if err := os.WriteFile(token, []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := d.Ensure(t.Context(), s)
	wantKind(t, err, holdfast.KindInvalid, true)
	if !strings.Contains(err.Error(), "garbage") {
		t.Errorf("%v does not quote the state", err)
	}
	if infos, lerr := d.List(t.Context()); lerr != nil || len(infos) != 0 {
		t.Errorf("%+v %v", infos, lerr)
	}
}

// TestTimersAreLateForBoxdOnly: boxd is woken late, its tools like any program.
func TestTimersAreLateForBoxdOnly(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "timers")
	b := box(t, d, s)
	if got := sh(t, b, "cat /proc/self/timerslack_ns"); got != "50000" {
		t.Errorf("a tool's timer slack is %q ns", got)
	}
	if os.Getuid() != 0 {
		return // that of another process is not ours to read
	}
	info, err := d.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("/proc/" + strconv.Itoa(info.PID) + "/timerslack_ns")
	if err != nil || string(got) != "2000000\n" {
		t.Errorf("boxd's timer slack is %q ns, %v", got, err)
	}
}
