//go:build linux

package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// install copies the probe into a box' workspace.
func install(t *testing.T, b *sandbox.Box) {
	t.Helper()
	program, err := os.ReadFile(probe(t))
	if err != nil {
		t.Fatal(err)
	}
	call := newCall(t)
	if _, err := b.Write(t.Context(), call, wire.WriteRequest{Path: "probe", Mode: 0o755}, program); err != nil {
		t.Fatal(err)
	}
	b.Release(call.ID)
}

// status reads lines of /proc/<path>/status of the host.
func status(t *testing.T, path string) map[string]string {
	t.Helper()
	return fields(t, filepath.Join("/proc", path, "status"))
}

func fields(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parseStatus(string(b))
}

func parseStatus(s string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(s) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out
}

// TestHZ1_ChildrenAreConfinedAndBoxdIsNot: every protection is on every child,
// terminals included, without a program in between, and only one thread of boxd
// (and those for files) carries it.
func TestHZ1_ChildrenAreConfinedAndBoxdIsNot(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "hz1")
	info := up(t, d, s)
	b := dial(t, d, s.Box)
	for name, req := range map[string]wire.ExecRequest{
		"argv":     {Argv: []string{"/bin/cat", "/proc/self/status"}},
		"shell":    {Shell: "cat /proc/self/status"},
		"terminal": {Argv: []string{"/bin/cat", "/proc/self/status"}, PTY: &wire.Size{Rows: 24, Cols: 80}},
	} {
		res, out := try(t, b, req)
		got := parseStatus(strings.ReplaceAll(out, "\r", ""))
		for k, want := range map[string]string{
			"NoNewPrivs": "1", "Seccomp": "2", "CapBnd": "0000000000000000", "CapEff": "0000000000000000", "CapPrm": "0000000000000000",
			"CapInh": "0000000000000000", "CapAmb": "0000000000000000", "Uid": "1000\t1000\t1000\t1000", "Gid": "1000\t1000\t1000\t1000",
		} {
			if got[k] != want {
				t.Errorf("%s: %s is %q, want %q (%+v)", name, k, got[k], want, res)
			}
		}
		if name == "argv" && got["PPid"] != "1" {
			t.Errorf("the parent of a child is %s, not boxd: %s", got["PPid"], out)
		}
	}
	if os.Geteuid() == 0 {
		if got := status(t, strconv.Itoa(info.PID))["Groups"]; got != "" {
			t.Errorf("boxd kept the groups %q", got)
		}
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", info.PID))
	confined := 0
	for _, file := range threads {
		st := fields(t, file)
		if st["Seccomp"] != "0" {
			confined++
			// At most the change of user that a fork takes.
			if prm := st["CapPrm"]; prm != "0000000000000000" && prm != "00000000000000c0" || st["CapBnd"] != "0000000000000000" || st["NoNewPrivs"] != "1" {
				t.Errorf("a confined thread holds capabilities %s of %s, no_new_privs %s", prm, st["CapBnd"], st["NoNewPrivs"])
			}
		} else if st["CapEff"] == "" || strings.HasPrefix(st["CapEff"], "000001ff") {
			t.Errorf("a thread of boxd kept its capabilities: %s", st["CapEff"])
		}
	}
	if main := status(t, strconv.Itoa(info.PID)); main["Seccomp"] != "0" {
		t.Error("boxd's main thread runs under the tools' seccomp program")
	}
	if confined < 2 || confined == len(threads) {
		t.Errorf("%d of %d threads are confined", confined, len(threads))
	}
}

// TestHZ1_ToolsCannotSignalBoxd: tools and terminals are in a Landlock domain of
// their own, so that no signal reaches any thread of boxd, not even where boxd has
// the tools' user (I-16).
func TestHZ1_ToolsCannotSignalBoxd(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	if !capable(t, d, "landlock") {
		t.Skip("SKIPPED LOUDLY: no Landlock here")
	}
	b := box(t, d, spec(dir, "signals"))
	install(t, b)
	for name, pty := range map[string]*wire.Size{"command": nil, "terminal": {Rows: 24, Cols: 80}} {
		_, out := try(t, b, wire.ExecRequest{Argv: []string{"./probe", "landlock-layers"}, PTY: pty})
		if strings.TrimSpace(out) != "ok 1" {
			t.Errorf("%s: Landlock domains: %q", name, out)
		}
		if !capable(t, d, "signal-scope") {
			continue
		}
		for _, argv := range [][]string{{"./probe", "kill", "1", "0"}, {"./probe", "killall", "1", "15"}} {
			if _, out := try(t, b, wire.ExecRequest{Argv: argv, PTY: pty}); strings.TrimSpace(out) != "EPERM" {
				t.Errorf("%s: %v: %q", name, argv, out)
			}
		}
	}
	sh(t, b, "true")
}

// TestHZ9_FileOperationsStayInTheBox: file operations run as a tool, so that a
// link a tool planted leads to nothing of boxd's.
//
// WS-R93, WS-R116.
func TestHZ9_FileOperationsStayInTheBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	b := box(t, d, spec(dir, "links"))
	sh(t, b, "for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do ln -s /proc/self/fd/$n fd$n; done; ln -s /proc/self/mem mem; ln -s /proc/1/environ env; ln -s /etc/shadow shadow")
	names := []string{"mem", "env", "shadow", "/proc/self/maps", "/proc/1/status"}
	for n := range 17 {
		names = append(names, fmt.Sprintf("fd%d", n), fmt.Sprintf("fd%d/token", n), fmt.Sprintf("fd%d/boxd/cgroup.procs", n))
	}
	for _, name := range names {
		var out strings.Builder
		if _, err := b.Read(t.Context(), wire.ReadRequest{Path: name}, &out); err == nil {
			t.Errorf("read %s: %q", name, out.String())
		}
		if _, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: name + "/x"}, []byte("x")); err == nil {
			t.Errorf("wrote into %s", name)
		}
	}
}

// TestHZ8_NoHostRoot: uid 0 of the host is never mapped, and a directory of root
// is never a workspace.
func TestHZ8_NoHostRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user maps its own uid only")
	}
	dir := home(t)
	d := open(t, dir)
	for _, change := range []func(*sandbox.Spec){
		func(s *sandbox.Spec) { s.BoxdUID = 0 },
		func(s *sandbox.Spec) { s.ToolUID = 0 },
		func(s *sandbox.Spec) { s.BoxdUID = s.ToolUID },
		func(s *sandbox.Spec) { s.Workspace = filepath.Join(dir, "roots"); _ = os.MkdirAll(s.Workspace, 0o755) },
	} {
		s := spec(dir, "root")
		change(&s)
		_, err := d.Ensure(t.Context(), s)
		wantKind(t, err, holdfast.KindInvalid, false)
		infos, lerr := d.List(t.Context())
		if lerr != nil || len(infos) != 0 {
			t.Fatalf("a refused box is listed: %+v %v", infos, lerr)
		}
	}
	// A directory of the tools' own user is fine, and what they make is theirs.
	s := spec(dir, "own")
	s.Workspace = filepath.Join(dir, "own")
	if err := os.Mkdir(s.Workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(s.Workspace, int(s.ToolUID), int(s.ToolUID)); err != nil {
		t.Fatal(err)
	}
	b := box(t, d, s)
	sh(t, b, "touch tool")
	if _, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "server"}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tool", "server"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(s.Workspace, name), &st); err != nil || st.Uid != s.ToolUID || st.Gid != s.ToolUID {
			t.Errorf("%s belongs to %d:%d, want %d (%v)", name, st.Uid, st.Gid, s.ToolUID, err)
		}
	}
	state := filepath.Join(s.Dir, "state")
	var st unix.Stat_t
	if err := unix.Stat(state, &st); err != nil || st.Uid != s.BoxdUID || st.Mode&0o777 != 0o700 {
		t.Errorf("the state directory belongs to %d with mode %o, want %d and 700 (%v)", st.Uid, st.Mode&0o777, s.BoxdUID, err)
	}
}

// needLimits skips where this machine gives no cgroups, loudly for root.
func needLimits(t *testing.T, d *local.Driver) {
	t.Helper()
	if !capable(t, d, "memory-limit") || !capable(t, d, "pids-limit") {
		t.Skip("SKIPPED LOUDLY: no cgroup limits here")
	}
}

// TestHZ2_MemoryHogsDoNotEndTheBox: sixty small hogs in a small box; the kernel
// takes them, and boxd goes on.
func TestHZ2_MemoryHogsDoNotEndTheBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	needLimits(t, d)
	s := spec(dir, "hz2")
	s.Limits.MemoryBytes = 64 << 20
	b := box(t, d, s)
	install(t, b)
	boot := b.Boot()
	sh(t, b, "for i in $(seq 60); do ./probe hog 4000000 > /dev/null 2>&1 & done")
	testkit.Eventually(t, "the kernel kills a hog", func() bool {
		st, err := b.Stats(t.Context())
		if err != nil || st.MemoryLimit != 64<<20 {
			t.Fatalf("%+v %v", st, err)
		}
		return st.OOMKills > 0
	})
	res, _ := try(t, b, wire.ExecRequest{Argv: []string{"./probe", "hog", "200000000"}})
	if res.Class != holdfast.ExitOOM {
		t.Errorf("a hog ended with class %s: %+v", res.Class, res)
	}
	if after := dial(t, d, s.Box).Boot(); after != boot {
		t.Fatalf("boxd died: boot %s, was %s", after, boot)
	}
}

// TestHZ2_FullTmpDoesNotEndTheBox: what file operations write to memory-backed
// directories is boxd's own memory.
func TestHZ2_FullTmpDoesNotEndTheBox(t *testing.T) {
	testkit.Long(t)
	dir := home(t)
	d := open(t, dir)
	needLimits(t, d)
	s := spec(dir, "tmp")
	s.Limits = sandbox.Limits{MemoryBytes: 300 << 20, TmpBytes: 1 << 40}
	b := box(t, d, s)
	boot := b.Boot()
	data := make([]byte, 8<<20)
	full := false
	for i := range 60 {
		for _, where := range []string{"/tmp", "/dev/shm"} {
			if _, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: fmt.Sprintf("%s/%d", where, i)}, data); err != nil {
				if where == "/tmp" {
					full = true
				}
			}
		}
		if full {
			break
		}
	}
	if !full {
		t.Error("/tmp took more than the box may have")
	}
	b = dial(t, d, s.Box)
	if after := b.Boot(); after != boot {
		t.Fatalf("boxd died: boot %s, was %s", after, boot)
	}
	sh(t, b, "rm -f /tmp/* /dev/shm/*")
}

// TestHZ2_PidsExhaustedDoNotEndTheBox: a box that is full of processes says so,
// works through files, and works again when they are gone.
//
// WS-N8.
func TestHZ2_PidsExhaustedDoNotEndTheBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	needLimits(t, d)
	s := spec(dir, "pids")
	s.Limits.Pids = 40
	b := box(t, d, s)
	install(t, b)
	boot := b.Boot()
	if out := sh(t, b, "./probe forks"); !strings.Contains(out, "EAGAIN") {
		t.Fatalf("the processes never filled the box: %s", out)
	}
	full := func() wire.ExecResult {
		res, _ := try(t, b, wire.ExecRequest{Argv: []string{"/bin/sh", "-c", "/bin/true & /bin/true & /bin/true & wait"}})
		return res
	}
	// A few may have room; then none has.
	var res wire.ExecResult
	for range 20 {
		begin(t, b, "exec sleep 3600 || true")
		if res = full(); res.Class == holdfast.ExitPids {
			break
		}
	}
	if res.Class != holdfast.ExitPids {
		t.Fatalf("an exec in a full box ended with class %s: %+v", res.Class, res)
	}
	if _, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "file"}, []byte("x")); err != nil {
		t.Errorf("a write in a full box: %v", err)
	}
	st, err := b.Stats(t.Context())
	if err != nil || st.PidsLimit != 40 {
		t.Errorf("%+v %v", st, err)
	}
	if after := dial(t, d, s.Box).Boot(); after != boot {
		t.Fatalf("boxd died: boot %s, was %s", after, boot)
	}
}

func pidOf(t *testing.T, d *local.Driver, id holdfast.BoxID) int {
	t.Helper()
	infos, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if i.Box == id && i.PID > 0 {
			return i.PID
		}
	}
	t.Fatalf("box %s does not run", id)
	return 0
}

// inWork matches the line of /proc/PID/cgroup of a thread in the freezer of a work leaf, or in the leaf itself on cgroup v2.
var inWork = regexp.MustCompile(`(?m)^\d+:(|freezer):.*/work$`)

// noThreadFrozen fails the test if a thread of a frozen box's boxd is frozen with the tools.
func noThreadFrozen(t *testing.T, d *local.Driver, box holdfast.BoxID) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pidOf(t, d, box)))
	if err != nil || len(threads) == 0 {
		t.Fatalf("boxd has no threads: %v", err)
	}
	for _, file := range threads {
		// A thread may end meanwhile.
		if b, err := os.ReadFile(file); err == nil && inWork.Match(b) {
			t.Errorf("a thread of boxd is inside the frozen leaf: %s", b)
		}
	}
}

// TestHZ10_FrozenBox: while the work leaf stands still boxd answers, forks wait
// behind the gate, its garbage collector runs; the next server thaws; a frozen
// box can be removed.
func TestHZ10_FrozenBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	if !capable(t, d, "freeze") {
		_, err := d.List(t.Context())
		s := spec(dir, "nofreeze")
		up(t, d, s)
		wantKind(t, d.Freeze(t.Context(), s.Box), holdfast.KindUnavailable, true)
		t.Skipf("no freezer here (%v)", err)
	}
	s := spec(dir, "hz10")
	b := box(t, d, s)
	begin(t, b, "while true; do echo x >> beat; done")
	sh(t, b, "true") // the forking thread was inside the leaf, and left it
	beat := filepath.Join(s.Dir, "workspace", "beat")
	size := func() int64 {
		st, err := os.Stat(beat)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	testkit.Eventually(t, "a heartbeat", func() bool { return size() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.Gate(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := d.Freeze(ctx, s.Box); err != nil {
		t.Fatal(err)
	}
	at := size()
	noThreadFrozen(t, d, s.Box)
	// Enough garbage for many collections: one thread in a frozen leaf would stop all.
	data := make([]byte, 1<<20)
	for i := range 40 {
		call := newCall(t)
		if _, err := b.Write(ctx, call, wire.WriteRequest{Path: "big"}, data); err != nil {
			t.Fatalf("write %d into a frozen box: %v", i, err)
		}
		b.Release(call.ID)
	}
	if now := size(); now != at {
		t.Errorf("a frozen process wrote: %d to %d", at, now)
	}
	if infos, err := d.List(ctx); err != nil || len(infos) != 1 || !infos[0].Frozen {
		t.Errorf("%+v %v", infos, err)
	}
	again := open(t, dir)
	if err := again.Thaw(ctx, s.Box); err != nil {
		t.Fatal(err)
	}
	tokens.Add(1)
	b2 := dial(t, again, s.Box)
	if err := b2.Gate(ctx, false); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the heartbeat goes on", func() bool { return size() > at })
	sh(t, b2, "true")
	if err := b2.Gate(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := again.Freeze(ctx, s.Box); err != nil {
		t.Fatal(err)
	}
	if err := again.Remove(ctx, s.Box); err != nil {
		t.Fatalf("remove of a frozen box: %v", err)
	}
}
