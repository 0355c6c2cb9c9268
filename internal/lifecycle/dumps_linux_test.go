package lifecycle

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

const undumpedEnv = "HOLDFAST_TEST_UNDUMPED"

// TestNoDumps: afterwards no memory of the process gets into a core file, its children
// cannot raise the limit, and a user namespace can still be mapped, which every box of
// an ordinary user needs.
func TestNoDumps(t *testing.T) {
	if os.Getenv(undumpedEnv) == "" {
		// In a process of its own: it cannot be undone.
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestNoDumps$", "-test.v")
		c.Env = append(os.Environ(), undumpedEnv+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestNoDumps") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := NoDumps(); err != nil {
		t.Fatal(err)
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil || core != (unix.Rlimit{}) {
		t.Errorf("%+v %v", core, err)
	}
	if filter, err := os.ReadFile("/proc/self/coredump_filter"); err != nil || strings.Trim(string(filter), "0\n") != "" {
		t.Errorf("filter %q %v", filter, err)
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if want := min(os.Geteuid(), 1); err != nil || dumpable != want {
		t.Errorf("dumpable is %d, want %d, %v", dumpable, want, err)
	}
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", "ulimit -Hc; ulimit -c unlimited 2>/dev/null && echo raised")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	}
	if out, _ := c.CombinedOutput(); string(out) != "0\n" {
		t.Errorf("a program in a namespace of its own says %q", out)
	}
}

func TestNoDumpsOfAnOrdinaryUser(t *testing.T) {
	if _, ok := testkit.IsUser(); ok {
		t.Skip("already")
	}
	testkit.AsUser(t, "^TestNoDumps$")
}
