//go:build linux

package boxd_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestExecStreamsOutputAndResult(t *testing.T) {
	c := startBox(t).dial(1)
	var started wire.Started
	res, out, errs := run(t, c, sh("echo out; echo err >&2; exit 3"), sandbox.ExecOptions{Started: func(s wire.Started) { started = s }})
	if out != "out\n" || errs != "err\n" {
		t.Errorf("output %q, %q", out, errs)
	}
	if res.Class != holdfast.ExitExit || res.Code != 3 || res.StdoutBytes != 4 || res.StderrBytes != 4 {
		t.Errorf("result %+v", res)
	}
	if started.PID == 0 || started.Attached {
		t.Errorf("started %+v", started)
	}
}

// WS-N4, WS-N5.
func TestExecClasses(t *testing.T) {
	c := startBox(t).dial(1)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		req   wire.ExecRequest
		class holdfast.ExitClass
		code  int
		sig   string
		msg   string
	}{
		{"ok", sh("true"), holdfast.ExitOK, 0, "", ""},
		{"argv", wire.ExecRequest{Argv: []string{"sh", "-c", "exit 0"}}, holdfast.ExitOK, 0, "", ""},
		{"exit", sh("exit 42"), holdfast.ExitExit, 42, "", ""},
		{"137 is an exit", sh("exit 137"), holdfast.ExitExit, 137, "", ""},
		{"signal", sh("kill -TERM $$"), holdfast.ExitSignal, -1, "SIGTERM", ""},
		{"SIGKILL alone is a signal", sh("kill -KILL $$"), holdfast.ExitSignal, -1, "SIGKILL", ""},
		{"real-time signal", sh("kill -40 $$"), holdfast.ExitSignal, -1, "signal 40", ""},
		{"timeout", wire.ExecRequest{Shell: "sleep 600", TimeoutMS: 50}, holdfast.ExitTimeout, -1, "SIGKILL", "timed out after 50ms"},
		{"not found", wire.ExecRequest{Argv: []string{"no-such-program"}}, holdfast.ExitError, 127, "", `"no-such-program" is not in PATH`},
		{"no file", wire.ExecRequest{Argv: []string{"/no/such/program"}}, holdfast.ExitError, 127, "", `"/no/such/program"`},
		{"not executable", wire.ExecRequest{Argv: []string{plain}}, holdfast.ExitError, 126, "", "may not run"},
		{"no directory", wire.ExecRequest{Argv: []string{"true"}, Cwd: "absent"}, holdfast.ExitError, 127, "", "no working directory"},
		{"a file for a directory", wire.ExecRequest{Argv: []string{"true"}, Cwd: plain}, holdfast.ExitError, 127, "", "no working directory"},
		{"too many arguments", wire.ExecRequest{Argv: []string{"true", strings.Repeat("x", 200<<10)}}, holdfast.ExitError, -1, "", "too long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, _, _ := run(t, c, tc.req, sandbox.ExecOptions{})
			if res.Class != tc.class || res.Code != tc.code || res.Signal != tc.sig || !strings.Contains(res.Message, tc.msg) {
				t.Errorf("result %+v", res)
			}
		})
	}
}

// counted are hands whose box has counters, as a cgroup would.
type counted struct {
	*boxd.OSHands
	mu        sync.Mutex
	oom, pids int64
}

func (c *counted) Events() (int64, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.oom, c.pids
}

func (c *counted) bump(oom, pids int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oom += oom
	c.pids += pids
}

// WS-N4.
func TestHZ2_OutOfMemoryIsJudgedFromCounters(t *testing.T) {
	for _, tc := range []struct {
		name      string
		script    string
		oom, pids int64
		class     holdfast.ExitClass
		code      int
	}{
		{"leader killed", "read x; kill -KILL $$", 1, 0, holdfast.ExitOOM, -1},
		{"child killed, leader exits 3", "read x; exit 3", 1, 0, holdfast.ExitOOM, 3},
		{"leader goes on well", "read x; exit 0", 1, 0, holdfast.ExitOK, 0},
		{"fork refused", "read x; exit 254", 0, 5, holdfast.ExitPids, 254},
		{"killed while forks are refused", "read x; kill -KILL $$", 0, 5, holdfast.ExitSignal, -1},
		{"nothing counted", "read x; exit 137", 0, 0, holdfast.ExitExit, 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &counted{OSHands: hands(), oom: 7, pids: 9}
			c := startBox(t, func(cfg *boxd.Config) { cfg.Hands = h }).dial(1)
			in, feed := io.Pipe()
			defer feed.Close()
			res, _, _ := run(t, c, sh(tc.script), sandbox.ExecOptions{Stdin: in, Started: func(wire.Started) {
				h.bump(tc.oom, tc.pids)
				go func() { _, _ = feed.Write([]byte("go\n")) }()
			}})
			if res.Class != tc.class || res.Code != tc.code {
				t.Errorf("result %+v", res)
			}
		})
	}
}

// full are hands in a box without room for another process.
type full struct{ *boxd.OSHands }

func (full) Start(boxd.StartSpec) (boxd.Process, error) {
	return nil, holdfast.Errorf(holdfast.KindBusy, "boxd exec", "no room for another process")
}

func TestHZ2_NoRoomForAProcessIsPids(t *testing.T) {
	c := startBox(t, func(cfg *boxd.Config) { cfg.Hands = full{hands()} }).dial(1)
	res, _, _ := run(t, c, sh("true"), sandbox.ExecOptions{})
	if res.Class != holdfast.ExitPids || !strings.Contains(res.Message, "no room") {
		t.Errorf("result %+v", res)
	}
}

func TestExecEnvironmentAndDirectory(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	if err := os.MkdirAll(filepath.Join(b.cfg.Workspace, "sub/dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := `echo "$BASE $ADD $HOLDFAST_SECRET"; pwd`
	for _, tc := range []struct{ cwd, want string }{
		{"", b.cfg.Workspace}, {"sub/dir", b.cfg.Workspace + "/sub/dir"}, {b.cfg.Home, b.cfg.Home},
	} {
		_, out, _ := run(t, c, wire.ExecRequest{Shell: script, Env: []string{"ADD=2", "BASE=3", "ADD=4"}, Cwd: tc.cwd}, sandbox.ExecOptions{})
		if out != "3 4 \n"+tc.want+"\n" {
			t.Errorf("cwd %q: %q", tc.cwd, out)
		}
	}
	prog := filepath.Join(b.cfg.Workspace, "sub/prog")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\necho ran $0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, out, _ := run(t, c, wire.ExecRequest{Argv: []string{"./prog"}, Cwd: "sub"}, sandbox.ExecOptions{})
	if !strings.HasPrefix(out, "ran ") {
		t.Errorf("relative program: %q", out)
	}
	_, out, _ = run(t, c, wire.ExecRequest{Argv: []string{"prog"}, Env: []string{"PATH=nowhere:sub:/bin"}}, sandbox.ExecOptions{})
	if !strings.HasPrefix(out, "ran ") {
		t.Errorf("program of the call's PATH: %q", out)
	}
}

func TestExecRefusesBadInput(t *testing.T) {
	c := startBox(t).dial(1)
	for _, tc := range []struct {
		req  wire.ExecRequest
		want string
	}{
		{wire.ExecRequest{}, "exactly one"},
		{wire.ExecRequest{Argv: []string{"a"}, Shell: "b"}, "exactly one"},
		{wire.ExecRequest{Argv: []string{""}}, "names no program"},
		{wire.ExecRequest{Argv: []string{"a", "b\x00c"}}, `"b\x00c" holds a NUL`},
		{wire.ExecRequest{Shell: "x", Env: []string{"NOVALUE"}}, `"NOVALUE" is not NAME=value`},
		{wire.ExecRequest{Shell: "x", Env: []string{"=v"}}, `"=v"`},
		{wire.ExecRequest{Shell: "x", Cwd: "a\x00"}, "NUL"},
		{wire.ExecRequest{Shell: "x", TimeoutMS: -1}, "-1 ms is negative"},
		{wire.ExecRequest{Shell: "x", PTY: &wire.Size{}, Lines: true}, "line protocol"},
	} {
		_, err := c.Exec(t.Context(), newCall(t), tc.req, sandbox.ExecOptions{})
		wantKind(t, err, holdfast.KindInvalid, tc.want)
	}
	_, err := c.Exec(t.Context(), newCall(t), sh("x"), sandbox.ExecOptions{StdoutFrom: -1})
	wantKind(t, err, holdfast.KindInvalid, "negative")
	_, err = c.Exec(t.Context(), sandbox.Call{}, sh("x"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindInvalid, "call id")
	_, err = c.Exec(t.Context(), sandbox.Call{ID: "not-a-uuid"}, sh("x"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindInvalid, `"not-a-uuid"`)
	_, err = c.Exec(t.Context(), sandbox.Call{ID: "01890A5D-AC96-774B-BCCE-B302099A8057"}, sh("x"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindInvalid, "lower case")
	if calls, err := c.Calls(t.Context()); err != nil || len(calls) != 0 {
		t.Errorf("a refused exec is held: %v %v", calls, err)
	}
}

// watcher is a writer that tells when it has seen something.
type watcher struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func (w *watcher) wait(t testing.TB) {
	t.Helper()
	select {
	case <-w.seen:
	case <-time.After(30 * time.Second):
		t.Fatalf("never saw %q in %q", w.want, w.String())
	}
}

// TestASH18_ParallelExecsGetTheirOwnOutput: 100 at once, none gets another's.
func TestASH18_ParallelExecsGetTheirOwnOutput(t *testing.T) {
	c := startBox(t).dial(1)
	var wg sync.WaitGroup
	for i := range 100 {
		call := newCall(t)
		wg.Go(func() {
			var out, errs bytes.Buffer
			res, err := c.Exec(t.Context(), call, sh(fmt.Sprintf("echo out %d; echo err %d >&2; exit %d", i, i, i)), sandbox.ExecOptions{Stdout: &out, Stderr: &errs})
			if err != nil || res.Code != i || out.String() != fmt.Sprintf("out %d\n", i) || errs.String() != fmt.Sprintf("err %d\n", i) {
				t.Errorf("exec %d: %+v %v %q %q", i, res, err, out.String(), errs.String())
			}
		})
	}
	wg.Wait()
}

// TestHZ9_NothingLeaksIntoChildren: a child has its three descriptors only.
func TestHZ9_NothingLeaksIntoChildren(t *testing.T) {
	c := startBox(t).dial(1)
	_, out, _ := run(t, c, sh(`for f in /proc/$$/fd/*; do [ -d $f ] || echo ${f##*/}; done`), sandbox.ExecOptions{Stdin: strings.NewReader("")})
	if strings.ReplaceAll(out, "255\n", "") != "0\n1\n2\n3\n" { // 3 was the listing itself
		t.Errorf("descriptors of a child: %q", out)
	}
	_, out, _ = run(t, c, sh(`cat /proc/self/status | grep -E 'SigIgn|SigBlk'`), sandbox.ExecOptions{})
	testkit.NoSignalsHeld(t, out)
	_, out, _ = run(t, c, sh(`for f in 0 1 2; do cat /proc/$$/fdinfo/$f | grep flags; done`), sandbox.ExecOptions{Stdin: strings.NewReader("")})
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var flags int
		fmt.Sscanf(strings.Fields(line)[1], "%o", &flags)
		if flags&0o4000 != 0 {
			t.Errorf("a child's descriptor does not block: %q", out)
		}
	}
}

func BenchmarkExecTrue(b *testing.B) {
	c := startBox(b).dial(1)
	for b.Loop() {
		call := newCall(b)
		res, err := c.Exec(b.Context(), call, wire.ExecRequest{Argv: []string{"/bin/true"}}, sandbox.ExecOptions{})
		if err != nil || res.Class != holdfast.ExitOK {
			b.Fatal(res, err)
		}
		c.Release(call.ID)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	c := startBox(b).dial(1)
	for b.Loop() {
		if _, err := c.Calls(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	c := startBox(b).dial(1)
	b.SetBytes(64 << 20)
	for b.Loop() {
		call := newCall(b)
		if _, err := c.Exec(b.Context(), call, sh("head -c 67108864 /dev/zero"), sandbox.ExecOptions{Stdout: io.Discard}); err != nil {
			b.Fatal(err)
		}
		c.Release(call.ID)
	}
}
