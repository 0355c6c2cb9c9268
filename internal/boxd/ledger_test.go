//go:build linux

package boxd_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ4_SameCallActsOnce: for exec and for every mutating file operation.
func TestHZ4_SameCallActsOnce(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	path := filepath.Join(b.cfg.Workspace, "log")
	exec := newCall(t)
	req := sh("echo line >> log; echo done; exit 2")
	for range 3 {
		var out bytes.Buffer
		res, err := c.Exec(t.Context(), exec, req, sandbox.ExecOptions{Stdout: &out})
		if err != nil || res.Code != 2 || out.String() != "done\n" {
			t.Fatalf("%+v %v %q", res, err, out.String())
		}
	}
	if got, _ := os.ReadFile(path); string(got) != "line\n" {
		t.Errorf("exec ran more than once: %q", got)
	}

	write, edit, remove, mkdir, rename := newCall(t), newCall(t), newCall(t), newCall(t), newCall(t)
	ops := func(round int) {
		t.Helper()
		if a, err := c.Write(t.Context(), write, wire.WriteRequest{Path: "f"}, []byte("a a")); err != nil || !a.Created {
			t.Fatal(round, a, err)
		}
		if a, err := c.Edit(t.Context(), edit, wire.EditRequest{Path: "f", Old: "a", New: "aa", All: true}); err != nil || a.Replaced != 2 {
			t.Fatal(round, a, err)
		}
		if err := c.Mkdir(t.Context(), mkdir, wire.MkdirRequest{Path: "d/e"}); err != nil {
			t.Fatal(round, err)
		}
		if err := c.Rename(t.Context(), rename, wire.RenameRequest{From: "f", To: "d/e/g"}); err != nil {
			t.Fatal(round, err)
		}
		if err := c.Remove(t.Context(), remove, wire.RemoveRequest{Path: "log"}); err != nil {
			t.Fatal(round, err)
		}
	}
	ops(1)
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	ops(2) // every answer is the held one, and nothing happens again
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Error("remove acted twice")
	}
	if got, _ := os.ReadFile(filepath.Join(b.cfg.Workspace, "d/e/g")); string(got) != "aa aa" {
		t.Errorf("file is %q", got)
	}
	// A failure is an outcome too.
	fails := newCall(t)
	err := c.Remove(t.Context(), fails, wire.RemoveRequest{Path: "absent"})
	wantKind(t, err, holdfast.KindNotFound)
	if err := os.WriteFile(filepath.Join(b.cfg.Workspace, "absent"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantKind(t, c.Remove(t.Context(), fails, wire.RemoveRequest{Path: "absent"}), holdfast.KindNotFound)
	if calls, err := c.Calls(t.Context()); err != nil || len(calls) != 7 {
		t.Errorf("%d calls held, %v", len(calls), err)
	}
}

func TestHZ4_OtherArgumentsAreConflict(t *testing.T) {
	c := startBox(t).dial(1)
	call := newCall(t)
	if _, err := c.Exec(t.Context(), call, sh("true"), sandbox.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Exec(t.Context(), call, sh("false"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindConflict, string(call.ID))
	wantKind(t, c.Mkdir(t.Context(), call, wire.MkdirRequest{Path: "x"}), holdfast.KindConflict)
	_, err = c.Write(t.Context(), call, wire.WriteRequest{Path: "x"}, nil)
	wantKind(t, err, holdfast.KindConflict)
	write := newCall(t)
	if _, err := c.Write(t.Context(), write, wire.WriteRequest{Path: "x"}, []byte("1")); err != nil {
		t.Fatal(err)
	}
	_, err = c.Write(t.Context(), write, wire.WriteRequest{Path: "x"}, []byte("2"))
	wantKind(t, err, holdfast.KindConflict)
	_, err = c.Exec(t.Context(), newCall(t), wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
	wantKind(t, err, holdfast.KindNotFound, "no call")
}

func TestHZ4_HeldUntilReleased(t *testing.T) {
	c := startBox(t).dial(1)
	call, other := newCall(t), newCall(t)
	for _, x := range []sandbox.Call{call, other} {
		if _, err := c.Exec(t.Context(), x, sh("echo out"), sandbox.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Release(call.ID, newID(t))
	c.Release()
	eventually(t, "the call is forgotten", func() bool {
		calls, err := c.Calls(t.Context())
		return err == nil && len(calls) == 1 && calls[0].Call == other.ID
	})
	_, err := c.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
	wantKind(t, err, holdfast.KindNotFound)
}

func TestReleaseLeavesRunningCalls(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	call, marker := newCall(t), newCall(t)
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), call, sh("while ! [ -e go ]; do sleep 0.01; done"), sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
		done <- err
	}()
	<-started
	if err := c.Mkdir(t.Context(), marker, wire.MkdirRequest{Path: "d"}); err != nil {
		t.Fatal(err)
	}
	c.Release(call.ID, marker.ID)
	eventually(t, "the finished one is forgotten", func() bool {
		calls, err := c.Calls(t.Context())
		return err == nil && len(calls) == 1
	})
	if err := os.WriteFile(filepath.Join(b.cfg.Workspace, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestTooManyHeldCallsAreBusy(t *testing.T) {
	c := startBox(t, func(cfg *boxd.Config) { cfg.MaxHeld = 3 }).dial(1)
	var calls []sandbox.Call
	for range 3 {
		call := newCall(t)
		calls = append(calls, call)
		if _, err := c.Exec(t.Context(), call, sh("true"), sandbox.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Exec(t.Context(), newCall(t), sh("true"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindBusy, "3 unreleased calls")
	wantKind(t, c.Mkdir(t.Context(), newCall(t), wire.MkdirRequest{Path: "x"}), holdfast.KindBusy)
	// A known call still answers.
	if _, err := c.Exec(t.Context(), calls[0], sh("true"), sandbox.ExecOptions{}); err != nil {
		t.Error(err)
	}
	c.Release(calls[0].ID)
	eventually(t, "there is room again", func() bool {
		return c.Mkdir(t.Context(), newCall(t), wire.MkdirRequest{Path: "x"}) == nil
	})
}

func TestConcurrentSameCallRunsOnce(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	call := newCall(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			var out bytes.Buffer
			if _, err := c.Exec(t.Context(), call, sh("echo x >> once; echo out"), sandbox.ExecOptions{Stdout: &out}); err != nil || out.String() != "out\n" {
				t.Errorf("%v %q", err, out.String())
			}
		})
	}
	wg.Wait()
	if got, _ := os.ReadFile(filepath.Join(b.cfg.Workspace, "once")); string(got) != "x\n" {
		t.Errorf("ran %d times", len(got)/2)
	}
}

func TestHZ3_LowerTokenIsRefusedQuotingBoth(t *testing.T) {
	b := startBox(t)
	b.dial(7)
	_, err := sandbox.Dial(t.Context(), "w-test", b.pipe(), 6, nil)
	wantKind(t, err, holdfast.KindConflict, "6", "7")
	if holdfast.HintOf(err) == "" {
		t.Error("no hint")
	}
	_, err = sandbox.Dial(t.Context(), "w-test", b.pipe(), 0, nil)
	wantKind(t, err, holdfast.KindInvalid)
	b.dial(7)
}

func TestHZ3_OlderConnectionsEndBeforeTheAnswer(t *testing.T) {
	b := startBox(t)
	raw := b.pipe()
	defer raw.Close()
	if w := rawHello(t, raw, 1); w.Err != nil {
		t.Fatal(w.Err)
	}
	b.dial(2)
	// The old side is already closed when the new one has its answer.
	_ = raw.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := raw.Read(make([]byte, 1)); err == nil || n != 0 || os.IsTimeout(err) {
		t.Errorf("the old connection is open: %d %v", n, err)
	}
}

// TestHZ3_StaleCallHasNoEffect: token 1 issues an exec that boxd has read but
// not begun (the gate is closed); token 2 connects and opens the gate.
func TestHZ3_StaleCallHasNoEffect(t *testing.T) {
	b := startBox(t)
	old := b.dial(1)
	if err := old.Gate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	stale := newCall(t)
	ended := make(chan error, 1)
	go func() {
		_, err := old.Exec(t.Context(), stale, sh("echo stale >> effects"), sandbox.ExecOptions{})
		ended <- err
	}()
	// The request is there when a later one on the same connection is answered.
	if _, err := old.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := b.dial(2)
	if !fresh.Welcome().Gated {
		t.Error("the welcome does not tell of the closed gate")
	}
	wantKind(t, <-ended, holdfast.KindUnavailable)
	if err := fresh.Gate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Exec(t.Context(), newCall(t), sh("echo fresh >> effects"), sandbox.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
	if calls, _ := fresh.Calls(t.Context()); len(calls) != 1 {
		t.Errorf("calls %+v", calls)
	}
	if got, _ := os.ReadFile(filepath.Join(b.cfg.Workspace, "effects")); string(got) != "fresh\n" {
		t.Errorf("effects: %q", got)
	}
}

// TestHZ3_StoppedClientContinues: the client with token 1 stands still with a
// half-sent write; token 2 connects; the first goes on.
func TestHZ3_StoppedClientContinues(t *testing.T) {
	b := startBox(t)
	raw := b.pipe()
	rawHello(t, raw, 1)
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false
	cfg.LogOutput = io.Discard
	session, err := yamux.Client(raw, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	stream, err := session.Open()
	if err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(wire.WriteRequest{Path: "stale"})
	id := newID(t)
	if err := wire.WriteJSON(stream, wire.FrameRequest, wire.Request{Op: wire.OpWrite, Call: id, Hash: wire.ArgumentHash(wire.OpWrite, body, []byte("data")), Body: body}); err != nil {
		t.Fatal(err)
	}
	if err := wire.WriteFrame(stream, wire.FrameData, []byte("data")); err != nil {
		t.Fatal(err)
	}
	fresh := b.dial(2)
	_ = wire.WriteFrame(stream, wire.FrameEOF, nil)
	if _, _, err := wire.ReadFrame(stream); err == nil {
		t.Error("the stale client got an answer")
	}
	if _, err := fresh.Stat(t.Context(), wire.PathRequest{Path: "stale"}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("the stale write had an effect: %v", err)
	}
	if calls, _ := fresh.Calls(t.Context()); len(calls) != 0 {
		t.Errorf("calls %+v", calls)
	}
}

func TestHZ3_TokenSurvivesRestart(t *testing.T) {
	b := startBox(t)
	b.dial(41)
	b.srv.Stop(0, "restart")
	next := startOn(t, b.cfg)
	_, err := sandbox.Dial(t.Context(), "w-test", next.pipe(), 40, nil)
	wantKind(t, err, holdfast.KindConflict, "40", "41")
	c := next.dial(41)
	if c.Boot() == b.srv.Boot() || c.Boot() != next.srv.Boot() {
		t.Error("the boot id is not of this life")
	}
}

// TestReconnectGoesOn: the pipe breaks in mid-call; the next connection finds
// the call, its output from any offset, and nothing ran twice.
func TestReconnectGoesOn(t *testing.T) {
	b := startBox(t)
	req := sh("echo x >> runs; echo one; while ! [ -e go ]; do sleep 0.01; done; echo two; exit 8")
	call := newCall(t)
	conn := b.pipe()
	c, err := sandbox.Dial(t.Context(), "w-test", conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := &watcher{want: "one\n", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), call, req, sandbox.ExecOptions{Stdout: out})
		ended <- err
	}()
	out.wait(t)
	_ = conn.Close() // as a killed server leaves it
	wantKind(t, <-ended, holdfast.KindUnavailable, "broke")
	<-c.Done()
	_ = c.Close()
	next := b.dial(1)
	calls := next.Welcome().Calls
	if len(calls) != 1 || calls[0].Call != call.ID || calls[0].Status != wire.CallRunning || calls[0].Hash == "" {
		t.Fatalf("welcome: %+v", calls)
	}
	if err := os.WriteFile(filepath.Join(b.cfg.Workspace, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	res, err := next.Exec(t.Context(), call, req, sandbox.ExecOptions{Stdout: &all})
	if err != nil || res.Code != 8 || all.String() != "one\ntwo\n" {
		t.Errorf("%+v %v %q", res, err, all.String())
	}
	if got, _ := os.ReadFile(filepath.Join(b.cfg.Workspace, "runs")); string(got) != "x\n" {
		t.Errorf("runs: %q", got)
	}
}

func TestWelcomeTellsOfManyCalls(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	const n = 2500
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range n / 10 {
				if err := c.Mkdir(t.Context(), newCall(t), wire.MkdirRequest{Path: "d"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(b.dial(1).Welcome().Calls); got != n {
		t.Errorf("welcome lists %d of %d calls", got, n)
	}
}
