//go:build linux

package boxd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ15_ExecEndsWithItsLeader: a background process holds the pipes open.
func TestHZ15_ExecEndsWithItsLeader(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	call := newCall(t)
	var out bytes.Buffer
	res, err := c.Exec(t.Context(), call, sh("(while :; do echo later; echo >> ticks; sleep 0.01; done) & echo pid $! now"), sandbox.ExecOptions{Stdout: &out})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatal(res, err)
	}
	_, after, _ := strings.Cut(out.String(), "pid ")
	var pid int
	if _, err := fmt.Sscanf(after, "%d now", &pid); err != nil {
		t.Fatalf("output %q", out.String())
	}
	if len(res.Left) == 0 || !strings.HasPrefix(res.Left[0], fmt.Sprint(pid)) {
		t.Errorf("left %q, want %d", res.Left, pid)
	}
	ticks := func() int64 {
		fi, err := os.Stat(filepath.Join(b.cfg.Workspace, "ticks"))
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	seen := ticks()
	eventually(t, "the background process goes on writing", func() bool { return ticks() > seen+5 })
	// What it writes later is no longer the call's output.
	var again bytes.Buffer
	res2, err := c.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: &again, AttachOnly: true})
	if err != nil || again.String() != out.String() || res2.StdoutBytes != res.StdoutBytes {
		t.Errorf("the outcome changed: %q then %q, %v", out.String(), again.String(), err)
	}
	// Killing the call ends what it left.
	if err := c.Kill(t.Context(), wire.KillRequest{Call: call.ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "background process ends", func() bool { return !alive(pid) })
}

// WS-N1.
func TestExecTimeoutKillsAllItStarted(t *testing.T) {
	c := startBox(t).dial(1)
	// A daemon in a session of its own, whose parent is gone, and a plain child.
	script := `setsid sh -c 'sleep 601 & echo $!' ; (sleep 602 & echo $!) ; echo started; sleep 603`
	res, out, _ := run(t, c, wire.ExecRequest{Shell: script, TimeoutMS: 700}, sandbox.ExecOptions{})
	if res.Class != holdfast.ExitTimeout {
		t.Fatalf("result %+v, output %q", res, out)
	}
	var daemon, child int
	if n, _ := fmt.Sscan(out, &daemon, &child); n != 2 {
		t.Fatalf("output %q", out)
	}
	if alive(daemon) || alive(child) {
		t.Errorf("alive after the timeout: daemon %v, child %v", alive(daemon), alive(child))
	}
	if len(res.Left) != 0 {
		t.Errorf("left %q", res.Left)
	}
}

// TestKillCatchesWhatRunsAway: a process that is another one all the time, in
// its group or in a new session for each fork.
//
// WS-N1.
func TestKillCatchesWhatRunsAway(t *testing.T) {
	for name, hop := range map[string]string{
		"group":    `"$0" $(($1 - 1)) &`,
		"sessions": `setsid "$0" $(($1 - 1)) &`,
		"crowd":    `"$0" $(($1 - 1)) & "$0" $(($1 / 2)) & sleep 0.1`,
	} {
		t.Run(name, func(t *testing.T) {
			b := startBox(t)
			c := b.dial(1)
			// It ends by itself after some thousand hops, or with its directory.
			script := "#!/bin/sh\n[ $1 -gt 0 ] || exit 0\n: >> hopped\n" + hop + "\n"
			if err := os.WriteFile(filepath.Join(b.cfg.Workspace, "hop"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			n := 20_000
			if name == "crowd" {
				n = 14
			}
			res, _, _ := run(t, c, wire.ExecRequest{Shell: fmt.Sprintf("./hop %d & while ! [ -e hopped ]; do sleep 0.01; done; sleep 600", n), TimeoutMS: 500}, sandbox.ExecOptions{})
			if res.Class != holdfast.ExitTimeout || len(res.Left) != 0 {
				t.Errorf("%+v", res)
			}
			procs, err := c.Processes(t.Context())
			if err != nil || len(procs) != 0 {
				t.Errorf("left: %+v %v", procs, err)
			}
		})
	}
}

func TestExecKillGivesGrace(t *testing.T) {
	c := startBox(t).dial(1)
	for _, tc := range []struct {
		name, script, out string
		grace             int64
		signal            string
	}{
		{"heeded", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done", "up\nbye\n", 20_000, ""},
		{"ignored", "trap '' TERM; echo up; while :; do sleep 0.05; done", "up\n", 50, "SIGKILL"},
		{"none", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done", "up\n", 0, "SIGKILL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			call := newCall(t)
			out := &watcher{want: "up\n", seen: make(chan struct{})}
			killed := make(chan error, 1)
			go func() {
				<-out.seen
				killed <- c.Kill(t.Context(), wire.KillRequest{Call: call.ID, GraceMS: tc.grace})
			}()
			res, err := c.Exec(t.Context(), call, sh(tc.script), sandbox.ExecOptions{Stdout: out})
			if err != nil || res.Class != holdfast.ExitCanceled || res.Signal != tc.signal || out.String() != tc.out {
				t.Errorf("%+v %v %q", res, err, out.String())
			}
			if err := <-killed; err != nil {
				t.Error(err)
			}
		})
	}
	err := c.Kill(t.Context(), wire.KillRequest{Call: newID(t)})
	wantKind(t, err, holdfast.KindNotFound, "no call")
}

func TestExecDetachesOnContextAndAttachesAgain(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	call := newCall(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := &watcher{want: "one\n", seen: make(chan struct{})}
	flag := filepath.Join(b.cfg.Workspace, "go")
	req := sh("echo one; while ! [ -e go ]; do sleep 0.01; done; echo two")
	go func() { <-first.seen; cancel() }()
	if _, err := c.Exec(ctx, call, req, sandbox.ExecOptions{Stdout: first}); !errors.Is(err, context.Canceled) {
		t.Fatalf("exec: %v", err)
	}
	calls, err := c.Calls(t.Context())
	if err != nil || len(calls) != 1 || calls[0].Status != wire.CallRunning || calls[0].Call != call.ID || calls[0].Op != wire.OpExec {
		t.Fatalf("calls %+v %v", calls, err)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var started wire.Started
	_, out, _ := func() (wire.ExecResult, string, error) {
		var buf bytes.Buffer
		res, err := c.Exec(t.Context(), call, req, sandbox.ExecOptions{Stdout: &buf, StdoutFrom: 4, Started: func(s wire.Started) { started = s }})
		if err != nil {
			t.Fatal(err)
		}
		return res, buf.String(), err
	}()
	if out != "two\n" || !started.Attached {
		t.Errorf("attached: %q %+v", out, started)
	}
}

func TestExecKillOnDetach(t *testing.T) {
	c := startBox(t).dial(1)
	for _, req := range []wire.ExecRequest{
		{Shell: "echo up; sleep 600", KillOnDetach: true},
		{Shell: "echo up; sleep 600", KillOnDetach: true, PTY: &wire.Size{Rows: 24, Cols: 80}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &watcher{want: "up", seen: make(chan struct{})}
		pid := 0
		go func() { <-out.seen; cancel() }()
		// Stdin that is never read fills the stream: the kill must not wait behind it.
		_, err := c.Exec(ctx, newCall(t), req, sandbox.ExecOptions{Stdout: out, Stdin: endless{}, Started: func(s wire.Started) { pid = s.PID }})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("exec: %v", err)
		}
		eventually(t, "the process is killed", func() bool { return !alive(pid) })
		eventually(t, "the call is forgotten", func() bool {
			calls, err := c.Calls(t.Context())
			return err == nil && len(calls) == 0
		})
	}
}

func TestZombieFlood(t *testing.T) {
	c := startBox(t).dial(1)
	// Orphans that end at once come to boxd in hundreds.
	res, _, _ := run(t, c, sh("for i in $(seq 1 400); do (sh -c 'exit 0' &) ; done"), sandbox.ExecOptions{})
	if res.Class != holdfast.ExitOK {
		t.Fatalf("%+v", res)
	}
	eventually(t, "all are reaped", func() bool { return zombies(t) == 0 })
}

func zombies(t *testing.T) int {
	n := 0
	pids, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range pids {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if f[0] == "Z" && f[1] == fmt.Sprint(os.Getpid()) {
			n++
		}
	}
	return n
}
