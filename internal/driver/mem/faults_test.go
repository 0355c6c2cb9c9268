package mem_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestFailEnsure(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	boom := errors.New("boom")
	d.FailEnsure(2, boom)
	for range 2 {
		if _, err := d.Ensure(t.Context(), s); !errors.Is(err, boom) {
			t.Fatalf("ensure: %v", err)
		}
	}
	up(t, d, s)
	d.FailEnsure(1, boom)
	if _, err := d.Ensure(t.Context(), s); err != nil {
		t.Fatalf("a running box is not found: %v", err)
	}
}

func TestFailConnect(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	up(t, d, s)
	boom := errors.New("boom")
	d.FailConnect(1, boom)
	if _, err := d.Connect(t.Context(), s.Box); !errors.Is(err, boom) {
		t.Fatalf("connect: %v", err)
	}
	dial(t, d, s.Box)
}

func TestHangHello(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	up(t, d, s)
	d.HangHello(1)
	conn, err := d.Connect(t.Context(), s.Box)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := sandbox.Dial(ctx, s.Box, conn, 1, nil); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("hello: %v", err)
	}
	dial(t, d, s.Box)
}

func TestDropConnectionKeepsTheBox(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	b := up(t, d, s)
	d.DropConnection(s.Box)
	<-b.Done()
	if again := dial(t, d, s.Box); again.Boot() != b.Boot() {
		t.Fatal("another life")
	}
	d.DropConnection("w-none")
}

func TestKillBoxLosesOutcomesAndProcesses(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	b := up(t, d, s)
	if _, err := run(t, b, "echo x >> ran; (while true; do echo x >> beat; sleep 0.01; done) & sleep 0.05"); err != nil {
		t.Fatal(err)
	}
	if !d.KillBox(s.Box) || d.KillBox(s.Box) || d.KillBox("w-none") {
		t.Fatal("it must die once")
	}
	<-b.Done()
	beat := func() int {
		c, err := os.ReadFile(filepath.Join(s.Dir, "workspace", "beat"))
		if err != nil {
			t.Fatal(err)
		}
		return len(c)
	}
	before := beat()
	again := up(t, d, s)
	if again.Boot() == b.Boot() || len(again.Welcome().Calls) != 0 || beat() != before {
		t.Fatalf("calls %v, heartbeat %d after %d", again.Welcome().Calls, beat(), before)
	}
}

func TestKillForMemoryIsClassOOM(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	b := up(t, d, s)
	if d.KillForMemory(s.Box) || d.KillForMemory("w-none") {
		t.Fatal("there is nothing to kill")
	}
	type answer struct {
		res wire.ExecResult
		err error
	}
	started, done := make(chan struct{}), make(chan answer, 1)
	call := newCall(t)
	go func() {
		res, err := b.Exec(context.Background(), call, wire.ExecRequest{Shell: "sleep 600"}, sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
		done <- answer{res, err}
	}()
	<-started
	if !d.KillForMemory(s.Box) {
		t.Fatal("nothing to kill")
	}
	if a := <-done; a.err != nil || a.res.Class != holdfast.ExitOOM {
		t.Fatalf("%+v, %v", a.res, a.err)
	}
	st, err := b.Stats(t.Context())
	if err != nil || st.OOMKills != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
}

func TestTerminalIsRefusedWithAHint(t *testing.T) {
	b := up(t, mem.New(mem.Config{}), spec(t))
	res, err := b.Exec(t.Context(), newCall(t), wire.ExecRequest{Shell: "true", PTY: &wire.Size{Rows: 1, Cols: 1}}, sandbox.ExecOptions{})
	if err == nil && (res.Class != holdfast.ExitError || !strings.Contains(res.Message, "does not imitate terminals")) {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestWorkspaceElsewhere(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	s.Workspace = filepath.Join(t.TempDir(), "project")
	b := up(t, d, s)
	if got, err := run(t, b, "pwd; echo x > file"); err != nil || got.out != "/workspace\n" {
		t.Fatalf("%+v, %v", got, err)
	}
	if c, err := os.ReadFile(filepath.Join(s.Workspace, "file")); err != nil || string(c) != "x\n" {
		t.Fatalf("%q, %v", c, err)
	}
}

func TestBadSpec(t *testing.T) {
	d := mem.New(mem.Config{})
	for _, s := range []sandbox.Spec{{Box: "w-a", Dir: "relative"}, {Box: "nothing", Dir: t.TempDir()}} {
		if _, err := d.Ensure(t.Context(), s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// A state that boxd refuses leaves no box.
func TestRefusedStateLeavesNothing(t *testing.T) {
	d, s := mem.New(mem.Config{}), spec(t)
	if err := os.MkdirAll(filepath.Join(s.Dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "state", "token"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Ensure(t.Context(), s); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Fatalf("ensure: %v", err)
	}
	infos, err := d.List(t.Context())
	if err != nil || len(infos) != 0 {
		t.Fatalf("left %+v, %v", infos, err)
	}
}
