//go:build linux

package jail

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// confined makes a forker in this process, without namespaces: its thread is
// hardened like in a box and stays so to the end of the test process.
func confined(t *testing.T, j wire.Jail, rules *rulesets) *forker {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: hardening a thread outside of a box takes root")
	}
	oom := openOOM()
	t.Cleanup(func() { _ = unix.Close(oom) })
	threads := Begin()
	f := newForker(&j, oom, threads)
	if err := errors.Join(threads.wait(), f.confine(rules)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(f); close(f.file.work) })
	return f
}

func closeAll(f *forker) {
	for _, t := range f.threads() {
		close(t.work)
	}
}

func none() *rulesets { return &rulesets{tools: -1, files: -1} }

// start forks argv and returns its output and exit status.
func start(t *testing.T, f *forker, spec boxd.StartSpec) (string, int, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	spec.Stdin, spec.Stdout, spec.Stderr = null, w, w
	if spec.Argv == nil {
		spec.Argv = []string{spec.Path}
	}
	pid, err := f.Fork(spec)
	_ = w.Close()
	if err != nil {
		return "", 0, err
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	return out.String(), ws.ExitStatus(), nil
}

func field(status, name string) string {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// TestHZ1_OneThreadIsConfined: a child has every protection, the process that
// forked it has none of them.
func TestHZ1_OneThreadIsConfined(t *testing.T) {
	f := confined(t, wire.Jail{ToolUID: 61_234}, none())
	out, code, err := start(t, f, boxd.StartSpec{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/status"}, Dir: "/"})
	if err != nil || code != 0 {
		t.Fatal(err, code, out)
	}
	for name, want := range map[string]string{
		"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": "0000000000000000",
		"CapInh": "0000000000000000", "CapAmb": "0000000000000000", "Uid": "61234\t61234\t61234\t61234", "Gid": "61234\t61234\t61234\t61234",
	} {
		if got := field(out, name); got != want {
			t.Errorf("%s of the child is %q, want %q", name, got, want)
		}
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if field(string(own), "Seccomp") != "0" || field(string(own), "NoNewPrivs") != "0" {
		t.Errorf("the whole process was confined:\n%s", own)
	}
	score, code, err := start(t, f, boxd.StartSpec{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/oom_score_adj"}, Dir: "/"})
	if err != nil || code != 0 || strings.TrimSpace(score) != "700" {
		t.Errorf("the child's score is %q (%v)", score, err)
	}
	if now := readScore(f.oom); now != f.home {
		t.Errorf("our own score became %d, was %d", now, f.home)
	}
}

// TestForkErrorsHaveKinds: what cannot start is told apart.
func TestForkErrorsHaveKinds(t *testing.T) {
	f := confined(t, wire.Jail{ToolUID: 61_234}, none())
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec boxd.StartSpec
		kind holdfast.Kind
		says string
	}{
		"no program":   {boxd.StartSpec{Path: "/nonexistent", Dir: "/"}, holdfast.KindNotFound, "program"},
		"no directory": {boxd.StartSpec{Path: "/bin/true", Dir: "/nonexistent"}, holdfast.KindNotFound, "directory"},
		"not allowed":  {boxd.StartSpec{Path: "/etc/passwd", Dir: "/"}, holdfast.KindDenied, "may not run"},
		"closed":       {boxd.StartSpec{Path: plain, Dir: "/"}, holdfast.KindDenied, "may not run"},
	} {
		_, _, err := start(t, f, c.spec)
		if !holdfast.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v of kind %q", name, err, holdfast.KindOf(err))
		}
	}
	full := explain(boxd.StartSpec{}, unix.EAGAIN)
	if !holdfast.IsKind(full, holdfast.KindBusy) || !strings.Contains(full.Error(), "pids") || holdfast.HintOf(full) == "" {
		t.Errorf("a full box: %v", full)
	}
	f.jail.WorkTasks = []int{-1}
	if err := explain(boxd.StartSpec{}, f.enter(&forkThread{})); !holdfast.IsKind(err, holdfast.KindUnavailable) || !errors.Is(err, unix.EBADF) {
		t.Errorf("a removed leaf: %v", err)
	}
}

// TestHZ10_GateHoldsForks: a closed gate waits for the fork under way, holds the
// next, and lets it go when it opens.
func TestHZ10_GateHoldsForks(t *testing.T) {
	f := confined(t, wire.Jail{ToolUID: 61_234}, none())
	if _, code, err := start(t, f, boxd.StartSpec{Path: "/bin/true", Dir: "/"}); err != nil || code != 0 {
		t.Fatal(err, code)
	}
	f.Gate(true)
	var ended atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, code, err := start(t, f, boxd.StartSpec{Path: "/bin/true", Dir: "/"}); err != nil || code != 0 {
			t.Error(err, code)
		}
		ended.Store(true)
	})
	// File operations pass a closed gate.
	for range 50 {
		if err := f.Do(func() error { _, err := os.Stat("/"); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if ended.Load() {
		t.Error("a fork passed the closed gate")
	}
	f.Gate(false)
	wg.Wait()
}

// TestHZ10_LeavesAreEntered: the forking thread is in every work leaf when it forks,
// and back in its own while the gate is closed. The leaves are files here.
func TestHZ10_LeavesAreEntered(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, flags int) int {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	writable := func(name string) int { return open(name, unix.O_WRONLY) }
	j := wire.Jail{ToolUID: 61_234, WorkTasks: []int{writable("w0"), writable("w1")}, BoxdTasks: []int{writable("b0"), writable("b1")}}
	f := confined(t, j, none())
	wrote := func(when, freezer, work, boxd string) {
		t.Helper()
		for name, want := range map[string]string{"w0": freezer, "w1": work, "b0": boxd, "b1": ""} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
				t.Errorf("%s: %s was written %q, want %q (%v)", when, name, b, want, err)
			}
		}
	}
	run := func() {
		t.Helper()
		if _, code, err := start(t, f, boxd.StartSpec{Path: "/bin/true", Dir: "/"}); err != nil || code != 0 {
			t.Fatal(err, code)
		}
	}
	run()
	if _, _, err := start(t, f, boxd.StartSpec{Path: "/nonexistent", Dir: "/"}); err == nil {
		t.Fatal("a program that is not there was started")
	}
	run()
	wrote("after three forks", "0", "0", "")
	f.Gate(true)
	wrote("with the gate closed", "0", "0", "0")
	f.Gate(true)
	f.Gate(false)
	wrote("with the gate open again", "0", "0", "0")
	run()
	wrote("after a fork", "00", "0", "0")

	// A leaf that takes nobody: the thread is nowhere in between.
	j.WorkTasks[1] = open("r1", unix.O_RDONLY)
	f = confined(t, j, none())
	if _, _, err := start(t, f, boxd.StartSpec{Path: "/bin/true", Dir: "/"}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("a fork outside of its leaf: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "b0")); err != nil || string(b) != "00" {
		t.Errorf("boxd's leaf was written %q (%v)", b, err)
	}
}

// TestFileThreads: file operations run confined, several at once, and no more
// than there are threads for.
func TestFileThreads(t *testing.T) {
	f := confined(t, wire.Jail{ToolUID: 61_234}, none())
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	err := f.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			return err
		}
		if s := string(b); field(s, "Seccomp") != "2" || field(s, "CapEff") != "0000000000000000" || field(s, "Uid") != "0\t0\t0\t61234" {
			t.Errorf("a file thread:\n%s", s)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != unix.EPERM {
			t.Errorf("mount: %v", err)
		}
		return os.WriteFile("/dev/null", nil, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := errors.New("mine")
	if got := f.Do(func() error { return want }); got != want {
		t.Errorf("the function's error became %v", got)
	}
	var now, most atomic.Int32
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for range 3 * maxFileThreads {
		wg.Go(func() {
			_ = f.Do(func() error {
				most.Store(max(most.Load(), now.Add(1)))
				<-gate
				now.Add(-1)
				return nil
			})
		})
	}
	deadline := time.Now().Add(20 * time.Second)
	for now.Load() < maxFileThreads && time.Now().Before(deadline) {
		<-time.After(time.Millisecond)
	}
	close(gate)
	wg.Wait()
	if got := most.Load(); got != maxFileThreads {
		t.Errorf("%d file operations ran at once, want %d", got, maxFileThreads)
	}
}

func TestCounters(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"usage": "12\n", "memory.current": "34\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string, flags int) int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	one := newForker(&wire.Jail{Counters: map[string]int{"memory.usage": open(filepath.Join(dir, "usage"), unix.O_RDONLY)}}, -1, &Threads{})
	for range 2 { // read from the start each time
		if got, ok := one.Counter("memory.usage"); !ok || got != "12\n" {
			t.Errorf("%q %v", got, ok)
		}
	}
	if got, ok := one.Counter("pids.max"); ok {
		t.Errorf("an unknown counter is %q", got)
	}
	two := newForker(&wire.Jail{WorkCgroup: open(dir, unix.O_DIRECTORY)}, -1, &Threads{})
	if got, ok := two.Counter("memory.usage"); !ok || got != "34\n" {
		t.Errorf("%q %v", got, ok)
	}
	if got, ok := two.Counter("cpu"); ok { // its controller is not there
		t.Errorf("%q", got)
	}
}

// TestEnterRefuses: a config that would confine less than it says.
func TestEnterRefuses(t *testing.T) {
	for name, j := range map[string]*wire.Jail{
		"none":   nil,
		"root":   {ToolUID: 0},
		"leaves": {ToolUID: 1000, WorkTasks: []int{9}},
		"not 1":  {ToolUID: 1000},
	} {
		f, _, _, err := Enter(&wire.Config{Jail: j}, nil)
		if f != nil || !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
