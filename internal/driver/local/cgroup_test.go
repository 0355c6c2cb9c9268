//go:build linux

package local

import (
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const someMounts = `24 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 24 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory
31 24 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/with\040space rw - cgroup cgroup rw,freezer
33 24 0:29 / /sys/fs/cgroup/unified rw shared:3 master:4 - cgroup2 cgroup2 rw,nsdelegate
broken line
`

func TestMountsAndOwnCgroupsAreFound(t *testing.T) {
	mounts := readMounts([]byte(someMounts))
	own := readOwn([]byte("5:memory:/a/b\n4:cpu,cpuacct:/docker/abc/job\n3:freezer:/\n1:name=systemd:/x\n0::/user.slice/u\nbroken\n"))
	for controller, want := range map[string]string{
		"memory": "/sys/fs/cgroup/memory/a/b", "cpu": "/sys/fs/cgroup/cpu,cpuacct/job", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/job",
		"freezer": "/sys/fs/cgroup/with space", "pids": "",
	} {
		m, ok := mountOf(mounts, controller)
		if ok != (want != "") {
			t.Errorf("%s: found %v", controller, ok)
		}
		if got := within(m, own[controller]); ok && got != want {
			t.Errorf("%s: %s, want %s", controller, got, want)
		}
	}
	// A path outside of what the mount shows can only be the mount itself.
	if got := within(mountInfo{root: "/docker/abc", point: "/p"}, "/elsewhere"); got != "/p" {
		t.Errorf("outside: %s", got)
	}
	if own[""] != "/user.slice/u" {
		t.Errorf("unified: %q", own[""])
	}
}

func TestCgroupPathsOfABox(t *testing.T) {
	one := hierarchy{base: map[string]string{"cpu": "/c/cpu,cpuacct/hf", "cpuacct": "/c/cpu,cpuacct/hf", "memory": "/c/memory/hf"}}
	c := one.plan("w-x")
	if diff := cmp.Diff([]string{"/c/memory/hf/w-x", "/c/cpu,cpuacct/hf/w-x"}, c.dirs()); diff != "" {
		t.Error(diff)
	}
	if c.leaf("memory", leafWork) != "/c/memory/hf/w-x/work" || c.leaf("pids", leafWork) != "" || c.canFreeze() {
		t.Errorf("%+v", c)
	}
	two := hierarchy{v2: true, base: map[string]string{"": "/u/hf"}}
	c = two.plan("w-x")
	if diff := cmp.Diff([]string{"/u/hf/w-x"}, c.dirs()); diff != "" {
		t.Error(diff)
	}
	if c.leaf("memory", leafBoxd) != "/u/hf/w-x/boxd" || !c.canFreeze() {
		t.Errorf("%+v", c)
	}
	none := noHierarchy("why")
	if c := none.plan("w-x"); len(c.dirs()) != 0 || c.canFreeze() {
		t.Errorf("%+v", c)
	}
}

// leafFiles makes the files of a leaf, as the kernel would.
func leafFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLimitsV2AreWritten checks the file contents of the unified hierarchy, whose
// controllers a machine with version 1 ones cannot offer.
func TestLimitsV2AreWritten(t *testing.T) {
	base := leafFiles(t, map[string]string{
		"w-x/cgroup.subtree_control": "cpu memory pids",
		"w-x/work/memory.max":        "max", "w-x/work/memory.swap.max": "", "w-x/work/pids.max": "", "w-x/work/cpu.max": "",
		"w-x/boxd/memory.max": "", "w-x/boxd/memory.swap.max": "", "w-x/boxd/pids.max": "", "w-x/boxd/cpu.max": "",
	})
	h := hierarchy{v2: true, base: map[string]string{"": base}, lack: map[string]string{}}
	c := h.plan("w-x")
	inForce, missing := c.limit(h, sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1.5, Pids: 64, TmpBytes: 4 << 20})
	if diff := cmp.Diff([]string{"memory-limit", "pids-limit", "cpu-limit"}, inForce); diff != "" || len(missing) != 0 {
		t.Fatalf("%s missing %v", diff, missing)
	}
	for file, want := range map[string]string{
		"work/memory.max": "1073741824", "work/memory.swap.max": "0", "work/pids.max": "64", "work/cpu.max": "150000 100000",
		"boxd/memory.max": "339738624", "boxd/pids.max": "1024",
	} {
		if b, err := os.ReadFile(path.Join(c.Dirs[""], file)); err != nil || string(b) != want {
			t.Errorf("%s is %q, want %q (%v)", file, b, want, err)
		}
	}
}

// TestLimitThatDoesNotStickIsMissing: what reads back as something else is not in
// force.
func TestLimitThatDoesNotStickIsMissing(t *testing.T) {
	base := leafFiles(t, map[string]string{"w-x/work/pids.max": "", "w-x/boxd/x": ""})
	// A file that forgets what is written to it.
	file := filepath.Join(base, "w-x", "work", "pids.max")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", file); err != nil {
		t.Fatal(err)
	}
	h := hierarchy{base: map[string]string{"pids": base}, lack: map[string]string{"memory": "none is mounted", "cpu": "none is mounted"}}
	c := h.plan("w-x")
	inForce, missing := c.limit(h, sandbox.Limits{Pids: 64})
	if len(inForce) != 0 || len(missing) != 3 || !strings.HasPrefix(missing[1], "pids-limit: ") || missing[0] != "memory-limit: none is mounted" {
		t.Errorf("in force %v, missing %q", inForce, missing)
	}
}

func TestBytesNear(t *testing.T) {
	near := bytesNear(1 << 20)
	for got, want := range map[string]bool{"1048576": true, "1044480": true, "1048577": false, "524288": false, "max": false, "": false} {
		if near(got) != want {
			t.Errorf("%q: %v", got, !want)
		}
	}
}

// TestPlanShowsNothingElse: the root of a box is an allow-list, everything of the
// host in it is read-only, and nothing private of /etc is among it.
//
// WS-R77, WS-P14.
func TestPlanShowsNothingElse(t *testing.T) {
	mounts, err := plan(&Config{}, "/ws", "/hm", sandbox.DefaultLimits(), false)
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]wire.Mount{}
	for _, m := range mounts {
		if _, twice := targets[m.Target]; twice {
			t.Errorf("%s is there twice", m.Target)
		}
		targets[m.Target] = m
		if m.Source != "" && !m.ReadOnly && m.Source != "/ws" && m.Source != "/hm" && !strings.HasPrefix(m.Source, "/dev/") {
			t.Errorf("%s is writable", m.Source)
		}
		if m.Dev && !strings.HasPrefix(m.Target, "/dev/") {
			t.Errorf("%s allows devices", m.Target)
		}
		switch top := topOf(m.Target); top {
		case "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc", "tmp", "run", "workspace", "home":
		default:
			t.Errorf("%s is in the box", m.Target)
		}
	}
	for _, want := range []string{"/usr", "/etc/passwd", "/etc/hosts", "/proc", "/dev/null", "/dev/pts", "/tmp", "/workspace", "/home/agent", "/run/holdfast"} {
		if _, ok := targets[want]; !ok {
			t.Errorf("%s is missing", want)
		}
	}
	for _, secret := range []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/machine-id", "/etc/ssl/private", "/etc/ssh", "/etc/gitconfig", "/var", "/root"} {
		if _, ok := targets[secret]; ok {
			t.Errorf("%s is in the box", secret)
		}
	}
	if !strings.Contains(targets["/etc/passwd"].Content, "agent:x:1000:1000") {
		t.Errorf("passwd: %q", targets["/etc/passwd"].Content)
	}
}

// TestOwnCgroupStands: while boxes start, /proc/self/cgroup tells the server's own cgroup, never
// the one of a box. A driver that looks meanwhile would make its threads go back to that box.
func TestOwnCgroupStands(t *testing.T) {
	c := boxCgroup{Dirs: map[string]string{"memory": "/"}}
	var first atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 50 {
				err := c.inside(hierarchy{}, nil, func() {
					if unix.Gettid() == unix.Getpid() {
						first.Add(1)
					}
				})
				if err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	if n := first.Load(); n > 0 {
		t.Errorf("the first thread was in the cgroup of a box %d times", n)
	}
}
