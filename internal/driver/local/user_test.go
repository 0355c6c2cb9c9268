//go:build linux

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

func withProbe(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	program := probe(t)
	return func(c *exec.Cmd) { c.Env = append(c.Env, "HOLDFAST_TEST_PROBE="+program) }
}

// TestHZ16_OrdinaryUser runs every test of this package that an ordinary user
// can pass as one.
func TestHZ16_OrdinaryUser(t *testing.T) {
	t.Parallel()
	if _, ok := testkit.IsUser(); ok {
		t.Skip("already")
	}
	testkit.AsUser(t, "^Test(Conformance|User|HZ1_|HZ8_|HZ9_|HZ10_|HZ18_|Any)", withProbe(t))
}

// TestHZ16_WallsOfTwoBoxes: an ordinary user's mounts go with the file below them, which another box may remove.
func TestHZ16_WallsOfTwoBoxes(t *testing.T) {
	t.Parallel()
	if _, ok := testkit.IsUser(); ok {
		t.Skip("already")
	}
	testkit.AsUser(t, "^TestAnyWallsOfTwoBoxes$", withProbe(t))
}

// unified makes a directory in the unified hierarchy for a test.
func unified(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "hf-test-")
		if err != nil {
			break
		}
		t.Cleanup(func() {
			inner, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
			for _, p := range inner {
				_ = os.Remove(filepath.Dir(p))
			}
			if err := unix.Rmdir(dir); err != nil {
				t.Errorf("remove %s: %v", dir, err)
			}
		})
		return dir
	}
	t.Skip("SKIPPED LOUDLY: no unified cgroup hierarchy to write to")
	return ""
}

// TestCgroupV2 runs the contract over the unified hierarchy. Where its
// controllers are in use by version 1 the limits are not in force, and said so;
// placing, freezing and killing work all the same.
func TestCgroupV2(t *testing.T) {
	testkit.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("the delegated variant is TestHZ16_DelegatedUser")
	}
	conformance(t, false, bestEffort, cgroupRoot(unified(t)))
}

// TestCgroupV2Prewarmed is the same with ready boots.
func TestCgroupV2Prewarmed(t *testing.T) {
	testkit.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("the delegated variant is TestHZ16_DelegatedUser")
	}
	conformance(t, true, bestEffort, cgroupRoot(unified(t)))
}

// TestHZ16_DelegatedUser is an ordinary user in a unit with Delegate=yes.
func TestHZ16_DelegatedUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("already")
	}
	dir := unified(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(dir, "unit")
	if err := os.Mkdir(unit, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(unit, name), testkit.UID, testkit.UID); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(unit)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	testkit.AsUser(t, "^Test(UserFreezes|HZ1_|HZ10_)", withProbe(t), func(c *exec.Cmd) {
		c.Env = append(c.Env, "LOCAL_TEST_DELEGATED=1")
		c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, int(f.Fd())
	})
}

// TestUserFreezes: delegation gives an ordinary user what it is for.
func TestUserFreezes(t *testing.T) {
	if os.Getenv("LOCAL_TEST_DELEGATED") == "" {
		t.Skip("nothing was delegated")
	}
	d := open(t, home(t))
	for _, c := range d.Probe(t.Context()).Capabilities {
		if (c.Name == "cgroup-leaves" || c.Name == "freeze") && !c.OK {
			t.Errorf("%s is missing in a delegated unit: %s", c.Name, c.Detail)
		}
	}
}

// TestUserLimitsAreRequiredUnlessWaived: without a cgroup a box starts only when
// that was allowed, and says what is not in force.
func TestUserLimitsAreRequiredUnlessWaived(t *testing.T) {
	if _, ok := testkit.IsUser(); !ok {
		t.Skip("root has limits")
	}
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "limits")
	s.LimitsMode = sandbox.LimitsRequired
	_, err := d.Ensure(t.Context(), s)
	wantKind(t, err, holdfast.KindUnavailable, true)
	if hint := holdfast.HintOf(err); !strings.Contains(hint, "holdfast serve --set limits.mode=best-effort") {
		t.Errorf("the hint cannot be pasted: %s", hint)
	}
	if p := d.Probe(t.Context()); !p.Usable {
		t.Errorf("waived, and not usable: %s", p.Reason)
	}
	strict := open(t, home(t), func(c *local.Config) { c.LimitsMode = sandbox.LimitsRequired })
	if p := strict.Probe(t.Context()); p.Usable || !strings.Contains(p.Reason, "memory-limit: ") || !strings.Contains(p.Hint, "limits.mode=best-effort") {
		t.Errorf("no box can start here, and the probe says %v %q %q", p.Usable, p.Reason, p.Hint)
	}
	if infos, err := d.List(t.Context()); err != nil || len(infos) != 0 {
		t.Fatalf("%+v %v", infos, err)
	}
	s.LimitsMode = sandbox.LimitsBestEffort
	info := up(t, d, s)
	missing := strings.Join(info.Missing, "\n")
	for _, name := range []string{"memory-limit: ", "pids-limit: ", "cpu-limit: ", "disk-limit: "} {
		if !strings.Contains(missing, name) {
			t.Errorf("%s is not listed as missing:\n%s", name, missing)
		}
	}
	if got := dial(t, d, s.Box).Welcome(); strings.Join(got.Missing, "\n") == "" || len(got.InForce) < 8 {
		t.Errorf("the welcome says in force %v, missing %v", got.InForce, got.Missing)
	}
}
