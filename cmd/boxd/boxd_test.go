//go:build linux

package main_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestMain keeps what the test was started with from the programs it starts.
func TestMain(m *testing.M) {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// program is a real boxd on this host, without a jail.
type program struct {
	t    testing.TB
	cmd  *exec.Cmd
	addr string
	dir  string
	err  *bytes.Buffer
	done chan struct{}
}

// command prepares boxd with a control socket in which its configuration waits, and
// files that go with it. A careless driver left a descriptor more open.
func command(t testing.TB, config string, files ...*os.File) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, leak := os.NewFile(uintptr(fds[1]), "control"), must(os.Open("/etc/passwd"))
	t.Cleanup(func() { _, _, _ = theirs.Close(), leak.Close(), unix.Close(fds[0]) })
	if config != "" {
		message := must(wire.AppendFrame(nil, wire.FrameRequest, []byte(config)))
		message = must(wire.AppendFrame(message, wire.FrameRequest, nil))
		var rights []int
		for _, f := range files {
			rights = append(rights, int(f.Fd()))
		}
		if err := wire.SendFiles(message, rights, func(b, oob []byte) (int, error) {
			return unix.SendmsgN(fds[0], b, oob, nil, 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Shutdown(fds[0], unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := &exec.Cmd{Path: testkit.Boxd(t), Args: []string{"boxd"}, ExtraFiles: []*os.File{theirs, leak}, Stderr: &stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, &stderr
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func start(t testing.TB, dir string) *program {
	t.Helper()
	for _, sub := range []string{"state", "work", "home"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	addr := fmt.Sprintf("@boxd-%d-%d", os.Getpid(), time.Now().UnixNano())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	lf, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	config, _ := json.Marshal(wire.Config{
		Box: "w-test", Listener: 1, State: dir + "/state", Workspace: dir + "/work", Home: dir + "/home",
		Env: []string{"PATH=/usr/bin:/bin"},
	})
	p := &program{t: t, addr: addr, dir: dir, done: make(chan struct{})}
	p.cmd, p.err = command(t, string(config), lf)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = lf.Close(), l.Close()
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(p.kill)
	return p
}

// pss is what the program weighs, in bytes.
func (p *program) pss() int64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	p.t.Fatalf("no Pss in %q", b)
	return 0
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *program) dial(token uint64) *sandbox.Box {
	p.t.Helper()
	conn, err := net.Dial("unix", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := sandbox.Dial(p.t.Context(), "w-test", conn, token, nil)
	if err != nil {
		p.t.Fatalf("%v; boxd says %q", err, p.err)
	}
	p.t.Cleanup(func() { _ = b.Close() })
	return b
}

func newCall(t testing.TB) sandbox.Call {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Call{ID: holdfast.CallID(id)}
}

func sh(t testing.TB, b *sandbox.Box, script string) string {
	t.Helper()
	var out bytes.Buffer
	call := newCall(t)
	res, err := b.Exec(t.Context(), call, wire.ExecRequest{Shell: script, Merge: true}, sandbox.ExecOptions{Stdout: &out})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%s: %+v %v %q", script, res, err, out.String())
	}
	b.Release(call.ID)
	return out.String()
}

func TestHZ1_ProgramIsSmallAndStatic(t *testing.T) {
	path := testkit.Program(t, "./cmd/boxd")
	fi, err := os.Stat(path)
	if err != nil || fi.Size() > 6<<20 {
		t.Errorf("%d bytes, %v", fi.Size(), err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("/lib64/ld-linux")) || bytes.Contains(b, []byte("/lib/ld-linux")) {
		t.Error("boxd needs a dynamic linker")
	}
}

func TestHZ1_IdleCostsLittle(t *testing.T) {
	p := start(t, t.TempDir())
	b := p.dial(1)
	for range 50 {
		sh(t, b, "true")
	}
	if n := p.pss(); n > 8<<20 {
		t.Errorf("PSS %d after work", n)
	}
	idle := start(t, t.TempDir())
	idle.dial(1)
	n := idle.pss()
	if n > 5<<20 {
		t.Errorf("idle PSS %d", n)
	}
	t.Logf("idle PSS %d KiB", n>>10)
}

// TestHZ4_OutputCostsNoMemory: a hundred printers at once, a boxd of a few MB.
func TestHZ4_OutputCostsNoMemory(t *testing.T) {
	p := start(t, t.TempDir())
	b := p.dial(1)
	var wg sync.WaitGroup
	for range 50 {
		call := newCall(t)
		wg.Go(func() {
			res, err := b.Exec(t.Context(), call, wire.ExecRequest{Shell: "yes | head -c 3000000"}, sandbox.ExecOptions{Stdout: io.Discard})
			if err != nil || res.StdoutBytes != 3000000 {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	wg.Wait()
	st, err := b.Stats(t.Context())
	n := p.pss()
	if err != nil || st.Held != 50 || n > 40<<20 {
		t.Errorf("%+v %v, PSS %d", st, err, n)
	}
	t.Logf("PSS after 50 printers at once: %d KiB", n>>10)
}

// TestHZ9_InheritedDescriptorsStay: neither the listener nor what a driver left
// open reaches a child.
func TestHZ9_InheritedDescriptorsStay(t *testing.T) {
	b := start(t, t.TempDir()).dial(1)
	out := sh(t, b, `for f in /proc/$$/fd/*; do readlink $f; done; true`)
	if strings.Contains(out, "socket") || strings.Contains(out, "passwd") || strings.Contains(out, "state") {
		t.Errorf("a child holds %q", out)
	}
}

// TestSignalsFromInsideDoNotEndBoxd: everything that can be held.
func TestSignalsFromInsideDoNotEndBoxd(t *testing.T) {
	p := start(t, t.TempDir())
	b := p.dial(1)
	for n := 1; n <= 64; n++ {
		switch syscall.Signal(n) {
		case unix.SIGKILL, unix.SIGSTOP, 32, 33, 34:
			continue
		}
		if err := unix.Kill(p.cmd.Process.Pid, syscall.Signal(n)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Calls(t.Context()); err != nil {
			t.Fatalf("signal %d ended boxd: %v, %q", n, err, p.err)
		}
	}
	if out := sh(t, b, "echo alive"); out != "alive\n" {
		t.Errorf("%q", out)
	}
	// And children start with none of them ignored or blocked.
	testkit.NoSignalsHeld(t, sh(t, b, "grep -E 'SigIgn|SigBlk' /proc/self/status"))
}

// TestHZ4_KilledBoxdForgetsAndSaysSo: outcomes are then unknown, the boot id
// tells, and the token is still known.
func TestHZ4_KilledBoxdForgetsAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	b := p.dial(7)
	call := newCall(t)
	if _, err := b.Exec(t.Context(), call, wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
	p.kill()
	<-b.Done()
	next := start(t, dir)
	conn, err := net.Dial("unix", next.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.Dial(t.Context(), "w-test", conn, 6, nil); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("an older token after the restart: %v", err)
	}
	n := next.dial(7)
	if n.Boot() == b.Boot() || len(n.Welcome().Calls) != 0 {
		t.Errorf("%+v", n.Welcome())
	}
	_, err = n.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
	if !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
}

func TestStopEndsTheProgramAndItsProcesses(t *testing.T) {
	p := start(t, t.TempDir())
	b := p.dial(1)
	pid, err := strconv.Atoi(strings.TrimSpace(sh(t, b, "sleep 600 >/dev/null 2>&1 & echo $!")))
	if err != nil {
		t.Fatal(err)
	}
	// The shell's child has the shell's name until it has become the program.
	testkit.Eventually(t, "the program runs", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && string(name) == "sleep\n"
	})
	a, err := b.Stop(t.Context(), wire.StopRequest{GraceMS: 100})
	if err != nil || len(a.Processes) != 1 || !strings.Contains(a.Processes[0], "sleep") {
		t.Errorf("%+v %v", a, err)
	}
	<-p.done
	if p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("exit %v, %q", p.cmd.ProcessState, p.err)
	}
	if unix.Kill(pid, 0) == nil {
		t.Error("its process goes on")
	}
}

func TestBadStartIsOneLineAndExit111(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "token"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ config, say string }{
		"no JSON":       {"rubbish", `"rubbish"`},
		"unknown key":   {`{"listener":1,"colour":1}`, "colour"},
		"no listener":   {`{"listener":0}`, "listener"},
		"missing file":  {`{"listener":77,"state":"` + t.TempDir() + `"}`, "descriptors"},
		"not a socket":  {`{"listener":1,"state":"` + t.TempDir() + `"}`, "listener"},
		"no state":      {`{"listener":1,"state":"/no/such/dir"}`, "/no/such/dir"},
		"corrupt state": {`{"listener":1,"state":"` + state + `"}`, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stderr := command(t, tc.config, null)
			err := cmd.Run()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 111 {
				t.Errorf("%v", err)
			}
			if line := stderr.String(); strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "boxd: ") || !strings.Contains(line, tc.say) {
				t.Errorf("says %q", line)
			}
		})
	}
	// A server that goes away before it says whose box this is.
	gone, stderr := command(t, "")
	if err := gone.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, says %q", err, stderr)
	}
	// By hand, without descriptor 3.
	cmd := exec.Command(testkit.Boxd(t))
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 111 || !strings.Contains(string(out), "descriptor 3") {
		t.Errorf("%q", out)
	}
}

func BenchmarkExecTrue(b *testing.B) {
	c := start(b, b.TempDir()).dial(1)
	for b.Loop() {
		call := newCall(b)
		if _, err := c.Exec(b.Context(), call, wire.ExecRequest{Argv: []string{"/bin/true"}}, sandbox.ExecOptions{}); err != nil {
			b.Fatal(err)
		}
		c.Release(call.ID)
	}
}
