//go:build linux

package local_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest/escape"
)

// landlockEnv makes the test binary start itself again without Landlock: a filter
// answers ENOSYS to its calls, for the server, boxd and all they start.
const (
	landlockEnv  = "LOCAL_TEST_LANDLOCK"
	landlockOff  = "off"
	landlockGone = "gone" // the filter is installed
)

func bestEffortLandlock(c *local.Config) { c.Landlock = sandbox.LandlockBestEffort }

// noLandlock installs the filter and starts this program again.
func noLandlock() int {
	runtime.LockOSThread()
	calls := []uint32{unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF}
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for i, nr := range calls {
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(calls) - i), K: nr})
	}
	prog = append(
		prog,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	)
	fp := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	var err error
	if os.Geteuid() != 0 {
		// Root can load a filter without no_new_privs, and some controls need what it
		// prevents.
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		if _, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fp))); errno != 0 {
			err = errno
		}
	}
	if err == nil {
		err = errors.Join(os.Setenv(landlockEnv, landlockGone), syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	_, _ = os.Stderr.WriteString(err.Error() + "\n")
	return 1
}

// landlockIsGone fails a test that claims to run without Landlock and does not.
func landlockIsGone(t *testing.T) {
	t.Helper()
	_, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != unix.ENOSYS {
		t.Fatalf("landlock_create_ruleset answers %v: the filter is not there", errno)
	}
}

// TestHZ18_LandlockIsRequired: on a kernel without Landlock no box of an ordinary user
// starts, and the probe and the error say why and how to go on. With the setting the
// box starts and lists what it lacks. A root server's boxes start either way.
func TestHZ18_LandlockIsRequired(t *testing.T) {
	if os.Getenv(landlockEnv) == landlockGone {
		withoutLandlock(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("root runs it as both")
	}
	testkit.AsUser(t, "^TestHZ18_LandlockIsRequired$", func(c *exec.Cmd) { c.Env = append(c.Env, landlockEnv+"="+landlockOff) })
	again(t, "^TestHZ18_LandlockIsRequired$")
}

// again runs tests of this package in a process without Landlock.
func again(t *testing.T, pattern string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run", pattern)
	cmd.Env = append(os.Environ(), append(env, landlockEnv+"="+landlockOff, "HOLDFAST_TEST_BOXD="+testkit.Boxd(t))...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("without Landlock: %v\n%s", err, out)
	}
}

func withoutLandlock(t *testing.T) {
	landlockIsGone(t)
	dir := home(t)
	d := open(t, dir)
	// Nothing else would keep the sessions of a shared box apart.
	s := spec(dir, "shared")
	s.Shared, s.Landlock = true, sandbox.LandlockBestEffort
	_, err := d.Ensure(t.Context(), s)
	wantKind(t, err, holdfast.KindUnavailable, true)
	if !strings.Contains(err.Error(), "Landlock") {
		t.Errorf("a shared box without Landlock: %v", err)
	}
	s = spec(dir, "bare")
	capability := func(p sandbox.Probe) sandbox.Capability {
		for _, c := range p.Capabilities {
			if c.Name == "landlock" {
				return c
			}
		}
		t.Fatal("the probe says nothing of Landlock")
		return sandbox.Capability{}
	}
	if os.Geteuid() == 0 {
		info := up(t, d, s)
		if missing := strings.Join(info.Missing, "\n"); !strings.Contains(missing, "landlock: ") {
			t.Errorf("Landlock is not listed as missing:\n%s", missing)
		}
		if c := capability(d.Probe(t.Context())); c.OK || c.Required {
			t.Errorf("%+v", c)
		}
		return
	}
	for _, mode := range []sandbox.LandlockMode{"", sandbox.LandlockRequired} {
		s.Landlock = mode
		_, err := d.Ensure(t.Context(), s)
		wantKind(t, err, holdfast.KindUnavailable, true)
		if hint := holdfast.HintOf(err); !strings.Contains(hint, "holdfast serve --set landlock=best-effort") {
			t.Errorf("the hint cannot be pasted: %s", hint)
		}
	}
	if infos, err := d.List(t.Context()); err != nil || len(infos) != 0 {
		t.Fatalf("a refused box is listed: %+v %v", infos, err)
	}
	p := d.Probe(t.Context())
	if c := capability(p); p.Usable || !c.Required || !strings.Contains(p.Reason, "landlock") || !strings.Contains(p.Hint, "landlock=best-effort") {
		t.Errorf("no box can start here, and the probe says %+v %v %q %q", c, p.Usable, p.Reason, p.Hint)
	}
	// Ready boots do not become one either: they follow the driver's setting.
	waived := open(t, home(t), bestEffortLandlock)
	if p := waived.Probe(t.Context()); !p.Usable {
		t.Errorf("waived, and not usable: %s", p.Reason)
	}
	s.Landlock = sandbox.LandlockBestEffort
	info := up(t, d, s)
	if missing := strings.Join(info.Missing, "\n"); !strings.Contains(missing, "landlock: ") {
		t.Errorf("Landlock is not listed as missing:\n%s", missing)
	}
	// Also without Landlock, file operations leave the box by no link.
	noOracle(t, bestEffortLandlock)
	workingDirectory(t, bestEffortLandlock)
}

// TestI16_EscapesWithoutLandlock makes the attempts by file operations on a kernel
// without Landlock: as root, and in an ordinary user's box that was allowed to start.
func TestI16_EscapesWithoutLandlock(t *testing.T) {
	testkit.Long(t)
	if os.Getenv(landlockEnv) == landlockGone {
		landlockIsGone(t)
		rows := attemptsWithoutLandlock(t)
		b, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(os.Getenv(rowsEnv), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	const pattern = "^TestI16_EscapesWithoutLandlock$"
	table := filepath.Join(testkit.Root(), "docs", "security", "escapes.md")
	rowsOf := func(path string) (rows []escape.Row) {
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	here := filepath.Join(home(t), "rows.json")
	again(t, pattern, rowsEnv+"="+here, "HOLDFAST_TEST_PROBE="+probe(t))
	section := "local, ordinary user without Landlock"
	if os.Geteuid() == 0 {
		escape.Check(t, table, "local, root without Landlock", rowsOf(here), *update)
		testkit.AsUser(t, pattern, withProbe(t), func(c *exec.Cmd) {
			here = filepath.Join(c.Dir, "rows.json")
			c.Env = append(c.Env, rowsEnv+"="+here, landlockEnv+"="+landlockOff)
		})
	}
	rows := rowsOf(here)
	if os.Geteuid() == 0 {
		escape.Controls(t, escapeConfig(t), rows)
	}
	escape.Check(t, table, section, rows, *update)
}

func attemptsWithoutLandlock(t *testing.T) []escape.Row {
	t.Helper()
	cfg := escapeConfig(t)
	// TestI16_Escapes makes the attempts that do not depend on Landlock: they take long.
	cfg.Without = []string{"resources", "races", escape.Siblings, escape.RootTrees}
	if os.Geteuid() == 0 {
		return escape.Run(t, cfg)
	}
	plain := cfg.Spec
	cfg.Spec = func(t *testing.T, d sandbox.Driver, name string) sandbox.Spec {
		s := plain(t, d, name)
		s.Landlock = sandbox.LandlockBestEffort
		return s
	}
	return append([]escape.Row{refusedRow(t)}, escape.Run(t, cfg)...)
}

// refusedRow is the start of a box where Landlock is required.
func refusedRow(t *testing.T) escape.Row {
	t.Helper()
	row := escape.Row{
		ID: "landlock-required", Group: escape.FileOperations, Attempt: "start a box of an ordinary user on a kernel without Landlock",
		Verdict: escape.Held, Control: "with landlock: best-effort it starts",
	}
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "refused")
	_, err := d.Ensure(t.Context(), s)
	if row.Saw = string(holdfast.KindOf(err)); err == nil || !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("a box without Landlock: %v", err)
		row.Verdict = escape.Escaped
	}
	s.Landlock = sandbox.LandlockBestEffort
	up(t, d, s)
	return row
}
