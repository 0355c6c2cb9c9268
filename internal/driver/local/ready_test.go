//go:build linux

package local_test

import (
	"context"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

func prewarm(t *testing.T, d *local.Driver, n int) {
	t.Helper()
	if err := d.Prewarm(t.Context(), n); err != nil {
		t.Fatalf("%v (hint: %s)", err, holdfast.HintOf(err))
	}
}

// upReady starts a box out of a ready boot, if there is one.
func upReady(t *testing.T, d *local.Driver, s sandbox.Spec) (sandbox.Spec, sandbox.Info) {
	t.Helper()
	s, _ = d.Reserve(s)
	return s, up(t, d, s)
}

// pids are the boxd processes of a data directory.
func pids(t *testing.T, dir string) []int {
	t.Helper()
	var out []int
	for _, p := range processesOf(dir) {
		pid, err := strconv.Atoi(strings.Fields(p)[1])
		if err != nil {
			t.Fatal(p)
		}
		out = append(out, pid)
	}
	return out
}

// TestAnyReadyBootBecomesTheBox: the very process, which then is like any other.
func TestAnyReadyBootBecomesTheBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	prewarm(t, d, 1)
	ready := pids(t, dir)
	if len(ready) != 1 {
		t.Fatalf("ready: %v", ready)
	}
	s, info := upReady(t, d, spec(dir, "same"))
	if info.PID != ready[0] {
		t.Errorf("the box is process %d, ready was %v: %v", info.PID, ready, d.Prewarm(t.Context(), 0))
	}
	warm := portrait(t, d, s, info)
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	if cold := portrait(t, d, s, up(t, d, s)); cold != warm {
		t.Errorf("out of a ready boot:\n%s\nfrom nothing:\n%s", warm, cold)
	}
}

// portrait is all that could tell two boxes of one spec apart, and what each of
// boxd's threads may do.
func portrait(t *testing.T, d *local.Driver, s sandbox.Spec, info sandbox.Info) string {
	t.Helper()
	b := dial(t, d, s.Box)
	defer b.Close()
	inForce := slices.Sorted(slices.Values(b.Welcome().InForce))
	missing := slices.Sorted(slices.Values(b.Welcome().Missing))
	out := fmt.Sprintln(inForce, missing, info.Missing)
	out += sh(t, b, `id; hostname; ulimit -a; pwd; env | sort; grep -E "^(Cap|NoNew|Secc|Groups|Uid|Gid)" /proc/self/status
		cut -d" " -f5,6 /proc/self/mountinfo | sed "s/inode64//" | sort; cat /etc/passwd /etc/group /etc/hosts /etc/hostname /etc/resolv.conf
		ls -l /dev /etc | grep -v ^total | awk "{print \$1, \$NF}"; ls -l /proc/self/fd | wc -l; cat /proc/self/cgroup | grep -c work; touch /x /etc/x /usr/x 2>&1; echo
		stat -c "%n %a %U" /tmp /dev/shm /run/holdfast /workspace /home/agent`) + "\n"
	keep := regexp.MustCompile(`^(Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp):`)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", info.PID))
	kinds := map[string]bool{}
	for _, f := range tasks {
		content, _ := os.ReadFile(f)
		var kind string
		for line := range strings.Lines(string(content)) {
			if keep.MatchString(line) {
				kind += line
			}
		}
		kinds[kind] = true
	}
	for kind := range kinds {
		if kind != "" {
			out += "thread:\n" + kind
		}
	}
	if len(kinds) == 0 {
		t.Error("boxd has no threads")
	}
	return sortThreads(out)
}

func sortThreads(s string) string {
	parts := strings.Split(s, "thread:\n")
	slices.Sort(parts[1:])
	return strings.Join(parts, "thread:\n")
}

// TestAnyReadyBootsEnd: with fewer wanted, and with the driver (checked by open).
func TestAnyReadyBootsEnd(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	prewarm(t, d, 3)
	if got := pids(t, dir); len(got) != 3 {
		t.Fatalf("ready: %v", got)
	}
	prewarm(t, d, 1)
	if got := pids(t, dir); len(got) != 1 {
		t.Fatalf("ready: %v", got)
	}
	prewarm(t, d, 0)
	if left := leftovers(t, dir); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	prewarm(t, d, 2)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Fatalf("left by Close: %v", left)
	}
	prewarm(t, d, 2)
	if got := pids(t, dir); len(got) != 0 {
		t.Fatalf("a closed driver made %v", got)
	}
	wantKind(t, d.Prewarm(t.Context(), -1), holdfast.KindInvalid, false)
}

// TestAnyReadyBootThatFailsCostsNoBox: dead, or unusable, it is replaced by a
// start from nothing.
func TestAnyReadyBootThatFailsCostsNoBox(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string, pid int){
		"killed":                func(_ *testing.T, _ string, pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
		"reserved, then killed": func(_ *testing.T, _ string, pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
		"no socket": func(t *testing.T, dir string, _ int) {
			files := testkit.Glob(dir, "run/local/*.socket")
			if len(files) != 1 {
				t.Fatalf("sockets: %v", files)
			}
			_ = os.Remove(files[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := home(t)
			d := open(t, dir, bestEffort)
			prewarm(t, d, 1)
			ready := pids(t, dir)
			s := spec(dir, "failed")
			if name == "reserved, then killed" {
				s, _ = d.Reserve(s)
			}
			spoil(t, dir, ready[0])
			s, info := upReady(t, d, s)
			if info.PID == ready[0] {
				t.Errorf("the box is process %d, which is no good", info.PID)
			}
			if got := sh(t, dial(t, d, s.Box), "echo works"); got != "works" {
				t.Error(got)
			}
			// One that was seen to be dead was not even tried.
			if err := d.Prewarm(t.Context(), 0); err == nil && name != "killed" {
				t.Error("nobody is told what failed")
			}
			if got := pids(t, dir); len(got) != 1 || got[0] != info.PID {
				t.Errorf("processes %v, the box is %d", got, info.PID)
			}
		})
	}
}

// TestAnyReadyBootHasTheLimitsOfItsBox: one that stands ready with others is for
// another box; the next ones have those of the last box.
func TestAnyReadyBootHasTheLimitsOfItsBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	prewarm(t, d, 1)
	limits := sandbox.Limits{Pids: 77, MemoryBytes: 200 << 20}
	s := spec(dir, "limits")
	s.Limits = limits
	if _, ok := d.Reserve(s); ok {
		t.Error("a boot with other limits was reserved")
	}
	prewarm(t, d, 0)
	prewarm(t, d, 1)
	s, ok := d.Reserve(s)
	if !ok {
		t.Fatal("no boot with the limits of the last box")
	}
	up(t, d, s)
	if !capable(t, d, "pids-limit") {
		return
	}
	owner := testkit.Owner(dir)
	for file, want := range map[string]string{"pids.max": "77", "memory.limit_in_bytes": strconv.Itoa(200 << 20), "memory.max": strconv.Itoa(200 << 20)} {
		found, _ := filepath.Glob("/sys/fs/cgroup/*/holdfast-" + owner + "/ready-*/work/" + file)
		more, _ := filepath.Glob("/sys/fs/cgroup/*/*/*/holdfast-" + owner + "/ready-*/work/" + file)
		for _, f := range append(found, more...) {
			if b, _ := os.ReadFile(f); strings.TrimSpace(string(b)) != want {
				t.Errorf("%s is %s, want %s", f, b, want)
			}
		}
	}
	all := strings.Join(dial(t, d, s.Box).Welcome().InForce, " ")
	for _, name := range []string{"memory-limit", "pids-limit", "cpu-limit"} {
		if !strings.Contains(all, name) {
			t.Errorf("%s is not in force: %s", name, all)
		}
	}
}

// TestAnyReadyBootHasTheUmaskOfItsBox: a box with another umask than a ready boot is started from nothing.
func TestAnyReadyBootHasTheUmaskOfItsBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	prewarm(t, d, 1)
	mask := uint32(0o027)
	s := spec(dir, "umask")
	s.Umask = &mask
	if _, ok := d.Reserve(s); ok {
		t.Fatal("a boot with another umask was reserved")
	}
	s.Umask = nil
	s, ok := d.Reserve(s)
	if !ok {
		t.Fatal("no boot was reserved")
	}
	if os.Geteuid() == 0 && s.ToolGID != s.ToolUID {
		t.Errorf("the tools' uid is %d, their gid %d", s.ToolUID, s.ToolGID)
	}
	s.Umask = &mask
	up(t, d, s)
	if got := strings.TrimSpace(sh(t, dial(t, d, s.Box), "umask")); got != "0027" {
		t.Errorf("the umask is %s", got)
	}
}

// TestAnyReadyBootIsForOneBox: a spec that is not the reserved one gets a start
// from nothing, with its own ids, and no ids are given twice.
func TestAnyReadyBootIsForOneBox(t *testing.T) {
	dir := home(t)
	former := open(t, dir, bestEffort)
	prewarm(t, former, 1)
	zero, ok := former.Reserve(spec(dir, "zero"))
	if err := former.Close(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	d := open(t, dir, bestEffort)
	prewarm(t, d, 2)
	first, ok1 := d.Reserve(spec(dir, "first"))
	second, ok2 := d.Reserve(spec(dir, "second"))
	if !ok1 || !ok2 || os.Geteuid() == 0 && first.ToolUID == second.ToolUID {
		t.Fatalf("%+v %v, %+v %v", first, ok1, second, ok2)
	}
	if os.Geteuid() == 0 && first.BoxdUID <= zero.BoxdUID+1 {
		t.Errorf("after a restart %+v, before %+v", first, zero)
	}
	moved := first
	moved.Dir = filepath.Join(dir, "s", "moved")
	before := pids(t, dir)
	if info := up(t, d, moved); slices.Contains(before, info.PID) {
		t.Error("the box has the boot that was reserved for another directory")
	}
	if err := d.Prewarm(t.Context(), 0); err == nil {
		t.Error("nobody is told that a reserved boot was of no use")
	}
	up(t, d, second)
}

// TestAnyServerKilledWithReadyBoots: whatever moment the server dies in, ready
// boots end by themselves, and the next server removes what they had.
func TestAnyServerKilledWithReadyBoots(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	rng := mrand.New(mrand.NewPCG(3, 4))
	for round := range 12 {
		s := spec(dir, fmt.Sprintf("killed-%d", round))
		cmd, lines := serve(t, dir, s, "LOCAL_TEST_PREWARM=1")
		if round < 4 {
			// While they are being made.
			<-time.After(time.Duration(rng.IntN(40_000)) * time.Microsecond)
		} else if !lines.Scan() || lines.Text() != "starting" {
			t.Fatalf("the server said %q", lines.Text())
		} else {
			<-time.After(time.Duration(rng.IntN(6_000)) * time.Microsecond)
		}
		kill(t, cmd)
		if err := d.Remove(t.Context(), s.Box); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "no process is left", func() bool { return len(processesOf(dir)) == 0 })
	}
	if _, err := open(t, dir, bestEffort).List(t.Context()); err != nil { // sweeps what they left
		t.Fatal(err)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
}

// TestReadyBoxWithoutAReadableRecordEnds: its cgroup does not bear its name, it
// is found all the same, and those of others are left alone.
func TestReadyBoxWithoutAReadableRecordEnds(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	if !capable(t, d, "cgroup-leaves") {
		t.Skip("no cgroups here")
	}
	prewarm(t, d, 2)
	lost, info := upReady(t, d, spec(dir, "lost"))
	_, stays := upReady(t, d, spec(dir, "other"))
	prewarm(t, d, 1)
	for _, f := range testkit.Glob(dir, "run/local/*.json") {
		if b, err := os.ReadFile(f); err != nil || strings.Contains(string(b), string(lost.Box)) {
			if err := os.WriteFile(f, []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Remove(t.Context(), lost.Box); err != nil {
		t.Fatal(err)
	}
	left := pids(t, dir)
	if slices.Contains(left, info.PID) || !slices.Contains(left, stays.PID) || len(left) != 2 {
		t.Errorf("lost %d, other %d, left %v", info.PID, stays.PID, left)
	}
}

// TestAnyReadyBootsDirectories: a new session's are made ahead, an old one's are
// left as they are, and a workspace elsewhere needs another box.
func TestAnyReadyBootsDirectories(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	prewarm(t, d, 1)
	fresh, _ := upReady(t, d, spec(dir, "fresh"))
	var before []string
	list := func(s sandbox.Spec) (out []string) {
		for _, name := range []string{"", "home", "state", "workspace", "state/token"} {
			fi, err := os.Stat(filepath.Join(s.Dir, name))
			if err != nil {
				continue
			}
			st := fi.Sys().(*syscall.Stat_t)
			out = append(out, fmt.Sprint(name, " ", fi.Mode(), " ", st.Uid == s.ToolUID, st.Uid == s.BoxdUID))
		}
		return out
	}
	dial(t, d, fresh.Box)
	if before = list(fresh); len(before) != 5 {
		t.Fatal(before)
	}
	cold := spec(dir, "cold")
	up(t, d, cold)
	dial(t, d, cold.Box)
	if got := list(cold); !slices.Equal(got, before) {
		t.Errorf("made ahead %v, made then %v", before, got)
	}

	if err := os.WriteFile(filepath.Join(fresh.Dir, "workspace", "kept"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context(), fresh.Box); err != nil {
		t.Fatal(err)
	}
	prewarm(t, d, 1)
	if s, ok := d.Reserve(fresh); ok || s.BoxdUID != fresh.BoxdUID {
		t.Errorf("a boot was reserved for a box that has files: %+v", s)
	}
	up(t, d, fresh)
	if got := sh(t, dial(t, d, fresh.Box), "cat kept"); got != "x" {
		t.Errorf("the workspace holds %q", got)
	}

	away := spec(dir, "away")
	away.Workspace = filepath.Join(cold.Dir, "workspace")
	away.ToolUID = cold.ToolUID
	if _, ok := d.Reserve(away); ok {
		t.Error("a boot was reserved for a box whose workspace is elsewhere")
	}
	prewarm(t, d, 0)
	if left := testkit.Glob(dir, "run/local/*.dir"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSweepOfARunningServer: what a server that is gone left is named, then
// removed; the ready boots of this one and its boxes stay.
func TestSweepOfARunningServer(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	prewarm(t, d, 1)
	_, info := upReady(t, d, spec(dir, "stays"))
	prewarm(t, d, 1)
	before := pids(t, dir)
	// Process 1 started at another time: the server of that name is gone.
	left := filepath.Join(dir, "run", "local", "ready-1-1-7.ready")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, look := range []func(context.Context) ([]sandbox.Leftover, error){d.Leftovers, d.Sweep} {
		if _, err := os.Stat(left); err != nil {
			t.Fatal(err)
		}
		if got, err := look(t.Context()); err != nil || len(got) != 1 || got[0].Name != "ready-1-1-7" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
	if got, err := d.Sweep(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("again %+v, %v", got, err)
	}
	if after := pids(t, dir); !slices.Equal(before, after) || !slices.Contains(after, info.PID) {
		t.Errorf("running before %v, after %v", before, after)
	}
}
