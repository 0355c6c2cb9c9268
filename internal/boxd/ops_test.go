//go:build linux

package boxd_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestGateHoldsBackStarts(t *testing.T) {
	c := startBox(t).dial(1)
	if err := c.Gate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := c.Gate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	call, given := newCall(t), newCall(t)
	if _, err := c.Exec(ctx, given, sh("touch given-up"), sandbox.ExecOptions{}); err != context.DeadlineExceeded {
		t.Fatalf("an exec got through: %v", err)
	}
	patient := make(chan error, 1)
	go func() {
		var out bytes.Buffer
		_, err := c.Exec(t.Context(), newCall(t), sh("cat"), sandbox.ExecOptions{Stdin: strings.NewReader("early"), Stdout: &out})
		if err == nil && out.String() != "early" {
			err = errors.New(out.String())
		}
		patient <- err
	}()
	if calls, _ := c.Calls(t.Context()); len(calls) != 0 {
		t.Errorf("a call that waits is held: %+v", calls)
	}
	// File operations go on.
	if err := c.Mkdir(t.Context(), newCall(t), wire.MkdirRequest{Path: "d"}); err != nil {
		t.Error(err)
	}
	for range 20 {
		if _, err := c.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Gate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := <-patient; err != nil {
		t.Errorf("the exec that waited: %v", err)
	}
	if res, err := c.Exec(t.Context(), call, sh("true"), sandbox.ExecOptions{}); err != nil || res.Class != holdfast.ExitOK {
		t.Error(res, err)
	}
	// Who gave up while it was closed finds nothing done afterwards.
	if _, err := c.Stat(t.Context(), wire.PathRequest{Path: "given-up"}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("an exec that was given up ran: %v", err)
	}
}

func TestFilesOverThePipe(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	big := bytes.Repeat([]byte("0123456789abcdef"), 300_000) // 4.8 MB: several frames, a spool file
	a, err := c.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "sub/big", Parents: true}, big)
	if err != nil || !a.Created || a.Size != int64(len(big)) {
		t.Fatalf("%+v %v", a, err)
	}
	var got bytes.Buffer
	ra, err := c.Read(t.Context(), wire.ReadRequest{Path: "sub/big"}, &got)
	if err != nil || !bytes.Equal(got.Bytes(), big) || ra.Size != int64(len(big)) || ra.Sent != int64(len(big)) {
		t.Errorf("%+v %v, %d bytes", ra, err, got.Len())
	}
	got.Reset()
	ra, err = c.Read(t.Context(), wire.ReadRequest{Path: "sub/big", Offset: 5, Limit: 2_000_000}, &got)
	if err != nil || !bytes.Equal(got.Bytes(), big[5:2_000_005]) || ra.Sent != 2_000_000 {
		t.Errorf("%+v %v, %d bytes", ra, err, got.Len())
	}
	if _, err := c.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "empty"}, nil); err != nil {
		t.Error(err)
	}
	fi, err := c.Stat(t.Context(), wire.PathRequest{Path: "empty"})
	if err != nil || fi.Type != wire.TypeFile || fi.Size != 0 {
		t.Errorf("%+v %v", fi, err)
	}
	if l, err := c.List(t.Context(), wire.ListRequest{Path: "."}); err != nil || len(l.Entries) != 2 {
		t.Errorf("%+v %v", l, err)
	}
	if g, err := c.Glob(t.Context(), wire.GlobRequest{Pattern: "**/b*"}); err != nil || len(g.Paths) != 1 {
		t.Errorf("%+v %v", g, err)
	}
	if _, err := c.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "g"}, []byte("x\nneedle\n")); err != nil {
		t.Error(err)
	}
	if g, err := c.Grep(t.Context(), wire.GrepRequest{Pattern: "need.e", Mode: "content"}); err != nil || len(g.Matches) != 1 || g.Matches[0].Line != 2 {
		t.Errorf("%+v %v", g, err)
	}
	_, err = c.Read(t.Context(), wire.ReadRequest{Path: "absent"}, &got)
	wantKind(t, err, holdfast.KindNotFound, "absent")
	_, err = c.Read(t.Context(), wire.ReadRequest{Path: "g", Offset: -1}, &got)
	wantKind(t, err, holdfast.KindInvalid)
	_, err = c.Read(t.Context(), wire.ReadRequest{Path: "sub/big"}, broken{})
	if err == nil || err.Error() != "broken" {
		t.Errorf("a writer's error: %v", err)
	}
}

// TestRefusedWriteTakesItsData: the client must hear why, however much it sends.
func TestRefusedWriteTakesItsData(t *testing.T) {
	c := startBox(t).dial(1)
	_, err := c.Write(t.Context(), sandbox.Call{ID: "bad"}, wire.WriteRequest{Path: "x"}, make([]byte, 3<<20))
	wantKind(t, err, holdfast.KindInvalid, `"bad"`)
	_, err = c.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "x/y/z"}, make([]byte, 3<<20))
	wantKind(t, err, holdfast.KindNotFound)
}

func TestEditLongerThanAFrame(t *testing.T) {
	c := startBox(t).dial(1)
	if _, err := c.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "f"}, []byte("here")); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long ", 120_000)
	if a, err := c.Edit(t.Context(), newCall(t), wire.EditRequest{Path: "f", Old: "here", New: long}); err != nil || a.Replaced != 1 {
		t.Fatal(a, err)
	}
	if fi, err := c.Stat(t.Context(), wire.PathRequest{Path: "f"}); err != nil || fi.Size != int64(len(long)) {
		t.Errorf("%+v %v", fi, err)
	}
}

func TestStatsAndProcesses(t *testing.T) {
	c := startBox(t).dial(1)
	call := newCall(t)
	started := make(chan wire.Started, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Exec(t.Context(), call, sh("sleep 600; true"), sandbox.ExecOptions{Started: func(s wire.Started) { started <- s }})
	}()
	pid := (<-started).PID
	st, err := c.Stats(t.Context())
	if err != nil || st.Held != 1 || st.Running != 1 || st.MemoryBytes != -1 || st.Pids < 1 || st.OOMKills != -1 {
		t.Errorf("%+v %v", st, err)
	}
	eventually(t, "the call's processes are listed", func() bool {
		procs, err := c.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leader, child := false, false
		for _, p := range procs {
			leader = leader || p.PID == pid && p.Call == call.ID
			child = child || p.PPID == pid && p.Call == call.ID && p.Name == "sleep"
		}
		return leader && child
	})
	if err := c.Kill(t.Context(), wire.KillRequest{Call: call.ID}); err != nil {
		t.Fatal(err)
	}
	<-done
}

// bare are hands that offer nothing beside the interface, as a simple driver's.
type bare struct{ boxd.Hands }

func TestHandsWithoutExtrasWork(t *testing.T) {
	b := startBox(t, func(cfg *boxd.Config) { cfg.Hands = bare{hands()} })
	c := b.dial(1)
	if res, out, _ := run(t, c, sh("echo x; exit 3"), sandbox.ExecOptions{}); res.Class != holdfast.ExitExit || out != "x\n" {
		t.Errorf("%+v %q", res, out)
	}
	call := newCall(t)
	up := &watcher{want: "up", seen: make(chan struct{})}
	pid := 0
	ended := make(chan wire.ExecResult, 1)
	go func() {
		res, _ := c.Exec(t.Context(), call, sh("trap '' TERM; echo up; while :; do sleep 0.02; done"), sandbox.ExecOptions{Stdout: up, Started: func(s wire.Started) { pid = s.PID }})
		ended <- res
	}()
	up.wait(t)
	if procs, err := c.Processes(t.Context()); err != nil || len(procs) == 0 || procs[0].Call != "" {
		t.Errorf("%+v %v", procs, err)
	}
	if _, err := c.Stop(t.Context(), wire.StopRequest{GraceMS: 50}); err != nil {
		t.Fatal(err)
	}
	if res := <-ended; res.Class != holdfast.ExitCanceled || res.Signal != "SIGKILL" {
		t.Errorf("%+v", res)
	}
	if alive(pid) {
		t.Error("the process goes on")
	}
}
