//go:build linux

package boxd_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/files"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestStopFlushesOutcomes: a stopped box's next life answers what the former
// one did, and knows that it is another life.
func TestStopFlushesOutcomes(t *testing.T) {
	b := startBox(t)
	c := b.dial(3)
	done, failed, long, wrote := newCall(t), newCall(t), newCall(t), newCall(t)
	script := "echo out; seq 1 300000; echo err >&2; exit 3"
	var full bytes.Buffer
	want, err := c.Exec(t.Context(), done, sh(script), sandbox.ExecOptions{Stdout: &full})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, c.Remove(t.Context(), failed, wire.RemoveRequest{Path: "absent"}), holdfast.KindNotFound)
	if _, err := c.Write(t.Context(), wrote, wire.WriteRequest{Path: "f"}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	up := &watcher{want: "up\n", seen: make(chan struct{})}
	ended := make(chan wire.ExecResult, 1)
	pid := 0
	go func() {
		res, _ := c.Exec(t.Context(), long, sh("echo up; echo side >&2; sleep 600"), sandbox.ExecOptions{Stdout: up, Started: func(s wire.Started) { pid = s.PID }})
		ended <- res
	}()
	up.wait(t)
	a, err := c.Stop(t.Context(), wire.StopRequest{GraceMS: 50, Reason: "test"})
	if err != nil || a.Unsaved != "" {
		t.Fatal(a, err)
	}
	if !strings.Contains(strings.Join(a.Processes, "\n"), fmt.Sprint(pid)) {
		t.Errorf("processes %q do not name %d", a.Processes, pid)
	}
	if res := <-ended; res.Class != holdfast.ExitCanceled || !strings.Contains(res.Message, "box stopped: test") {
		t.Errorf("the running call ended as %+v", res)
	}
	if alive(pid) {
		t.Error("a process outlived its box")
	}
	if err := <-b.end; err != nil {
		t.Errorf("serve: %v", err)
	}
	b.end <- nil

	next := startOn(t, b.cfg)
	n := next.dial(3)
	if n.Boot() == c.Boot() || len(n.Welcome().Calls) != 4 {
		t.Fatalf("welcome %+v", n.Welcome())
	}
	var out, errs bytes.Buffer
	var gaps counter
	res, err := n.Exec(t.Context(), done, sh(script), sandbox.ExecOptions{Stdout: &gapBuffer{&out, &gaps}, Stderr: &errs})
	if err != nil || res.Code != want.Code || res.StdoutBytes != want.StdoutBytes || errs.String() != "err\n" {
		t.Errorf("%+v %v %q", res, err, errs.String())
	}
	if !strings.HasPrefix(full.String(), out.String()[:1000]) || !strings.HasSuffix(full.String(), out.String()[out.Len()-1000:]) || gaps.gaps+int64(out.Len()) != want.StdoutBytes {
		t.Errorf("output: %d bytes and %d in gaps of %d", out.Len(), gaps.gaps, want.StdoutBytes)
	}
	wantKind(t, n.Remove(t.Context(), failed, wire.RemoveRequest{Path: "absent"}), holdfast.KindNotFound, "absent")
	if a, err := n.Write(t.Context(), wrote, wire.WriteRequest{Path: "f"}, []byte("x")); err != nil || !a.Created {
		t.Error(a, err)
	}
	res, err = n.Exec(t.Context(), long, wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
	if err != nil || res.Class != holdfast.ExitCanceled {
		t.Errorf("%+v %v", res, err)
	}
	if err := n.Kill(t.Context(), wire.KillRequest{Call: done.ID}); err != nil {
		t.Error(err)
	}
	// The file stays until the last is released: a crash now loses nothing.
	file := filepath.Join(b.cfg.State, "outcomes")
	n.Release(done.ID, failed.ID, wrote.ID)
	eventually(t, "three are forgotten", func() bool { calls, err := n.Calls(t.Context()); return err == nil && len(calls) == 1 })
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	n.Release(long.ID)
	eventually(t, "the file is gone", func() bool { _, err := os.Stat(file); return os.IsNotExist(err) })
}

type gapBuffer struct {
	*bytes.Buffer
	*counter
}

func (g *gapBuffer) Write(p []byte) (int, error) { return g.Buffer.Write(p) }

func TestStopNamesNoAgents(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	agent, server := make(chan int, 1), &watcher{want: "up\n", seen: make(chan struct{})}
	in, feed := io.Pipe()
	defer feed.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), newCall(t), wire.ExecRequest{Shell: "sleep 601 & echo up; cat; true", Stdin: true, Lines: true}, sandbox.ExecOptions{
			Stdin: in, Stdout: server, Started: func(s wire.Started) { agent <- s.PID },
		})
		ended <- err
	}()
	pid := <-agent
	server.wait(t)
	a, err := c.Stop(t.Context(), wire.StopRequest{GraceMS: 50})
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	own := func(p string) bool { return strings.HasPrefix(p, fmt.Sprintf("%d ", pid)) }
	if len(a.Processes) == 0 || slices.ContainsFunc(a.Processes, own) {
		t.Errorf("processes %q; the agent is %d, and it left others", a.Processes, pid)
	}
}

// WS-R59.
func TestStopGivesGraceToAll(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	// A daemon that left its call heeds SIGTERM.
	script := `setsid sh -c 'trap "echo ended > ended; exit" TERM; echo up > up; while :; do sleep 0.02; done' & while ! [ -e up ]; do sleep 0.01; done`
	if res, _, _ := run(t, c, sh(script), sandbox.ExecOptions{}); res.Class != holdfast.ExitOK || len(res.Left) == 0 {
		t.Fatalf("%+v", res)
	}
	if _, err := c.Stop(t.Context(), wire.StopRequest{GraceMS: 20_000}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.cfg.Workspace, "ended")); err != nil {
		t.Error("the daemon had no time to end")
	}
}

func TestStoppingBoxTakesNoCalls(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	call := newCall(t)
	up := &watcher{want: "up\n", seen: make(chan struct{})}
	go func() {
		_, _ = c.Exec(t.Context(), call, sh("trap 'echo term' TERM; echo up; while :; do sleep 0.02; done"), sandbox.ExecOptions{Stdout: up})
	}()
	up.wait(t)
	term := &watcher{want: "term\n", seen: make(chan struct{})}
	stopped := make(chan error, 1)
	go func() { _, err := c.Stop(t.Context(), wire.StopRequest{GraceMS: 700}); stopped <- err }()
	go func() {
		_, _ = c.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: term, AttachOnly: true})
	}()
	term.wait(t)
	_, err := c.Exec(t.Context(), newCall(t), sh("true"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindUnavailable, "stopping")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	<-c.Done()
	b.srv.ServeConn(closedConn(t)) // refused, not served
	if a := b.srv.Stop(0, "again"); len(a.Processes) != 0 {
		t.Errorf("%+v", a)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.srv.Serve(t.Context(), l); err != nil {
		t.Error(err)
	}
}

func closedConn(t *testing.T) net.Conn {
	a, b := net.Pipe()
	_ = b.Close()
	return a
}

func TestOrphanStopsItself(t *testing.T) {
	b := startBox(t, func(cfg *boxd.Config) { cfg.OrphanAfter = 2 * time.Second })
	c := b.dial(1)
	call := newCall(t)
	pid := make(chan int, 1)
	go func() {
		_, _ = c.Exec(t.Context(), call, sh("sleep 600"), sandbox.ExecOptions{Started: func(s wire.Started) { pid <- s.PID }})
	}()
	p := <-pid
	// While connected it stays: longer than the orphan time.
	deadline := time.After(4 * time.Second)
	select {
	case <-b.end:
		t.Fatal("stopped while a server was connected")
	case <-deadline:
	}
	_ = c.Close()
	select {
	case err := <-b.end:
		if err != nil {
			t.Error(err)
		}
		b.end <- nil
	case <-time.After(30 * time.Second):
		t.Fatal("an orphan goes on")
	}
	if alive(p) {
		t.Error("its process goes on")
	}
	b.cfg.OrphanAfter = 0
	n := startOn(t, b.cfg).dial(1)
	res, err := n.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
	if err != nil || res.Class != holdfast.ExitCanceled || !strings.Contains(res.Message, "no server connected") {
		t.Errorf("%+v %v", res, err)
	}
}

func TestCorruptStateIsRefused(t *testing.T) {
	b := startBox(t)
	c := b.dial(5)
	if err := c.Mkdir(t.Context(), newCall(t), wire.MkdirRequest{Path: "d"}); err != nil {
		t.Fatal(err)
	}
	b.srv.Stop(0, "")
	token, outcomes := filepath.Join(b.cfg.State, "token"), filepath.Join(b.cfg.State, "outcomes")
	goodToken, goodOutcomes := read(t, token), read(t, outcomes)
	for _, tc := range []struct{ name, file, content string }{
		{"cut token", token, `{"tok`},
		{"zero token", token, `{"token":0}`},
		{"foreign token", token, `{"token":5,"more":1}`},
		{"empty outcomes", outcomes, ""},
		{"foreign outcomes", outcomes, "something else\n"},
		{"cut outcomes", outcomes, goodOutcomes[:len(goodOutcomes)-1]},
		{"changed outcomes", outcomes, strings.Replace(goodOutcomes, "mkdir", "write", 1)},
		{"no outcome", outcomes, headline("{}\n")},
		{"unknown field", outcomes, headline(`{"call":"x","op":"mkdir","hash":"","answer":{},"new":1}` + "\n")},
		{"both", outcomes, headline(`{"call":"x","op":"mkdir","hash":"","answer":{},"error":{}}` + "\n")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			write(t, token, goodToken)
			write(t, outcomes, goodOutcomes)
			write(t, tc.file, tc.content)
			_, err := boxd.New(b.cfg)
			wantKind(t, err, holdfast.KindInvalid, filepath.Base(tc.file), "not valid")
			if holdfast.HintOf(err) == "" {
				t.Error("no hint")
			}
		})
	}
	// Leftovers of a killed boxd are not corruption.
	write(t, token, goodToken)
	write(t, outcomes, goodOutcomes)
	left := filepath.Join(b.cfg.State, ".tmp-0011223344556677")
	write(t, left, "half")
	if n := startOn(t, b.cfg).dial(5); len(n.Welcome().Calls) != 1 {
		t.Errorf("%+v", n.Welcome())
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error("the leftover is still there")
	}
}

func headline(body string) string {
	return boxd.Headline([]byte(body)) + body
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	good := boxd.Config{Config: wire.Config{State: t.TempDir(), Workspace: "/"}, Hands: hands(), Files: files.New(files.Config{Workspace: "/"})}
	for name, spoil := range map[string]func(*boxd.Config){
		"no hands":       func(c *boxd.Config) { c.Hands = nil },
		"no files":       func(c *boxd.Config) { c.Files = nil },
		"no state":       func(c *boxd.Config) { c.State = "" },
		"relative state": func(c *boxd.Config) { c.State = "state" },
		"absent state":   func(c *boxd.Config) { c.State = "/no/such/dir" },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := boxd.New(cfg); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTokenThatCannotBeKeptIsRefused: fencing that a restart would forget is none.
func TestTokenThatCannotBeKeptIsRefused(t *testing.T) {
	b := startBox(t)
	if err := os.RemoveAll(b.cfg.State); err != nil {
		t.Fatal(err)
	}
	_, err := sandbox.Dial(t.Context(), "w-test", b.pipe(), 1, nil)
	wantKind(t, err, holdfast.KindUnavailable, "token")
}

// TestOutcomesOfAnyLengthAreLoaded: a long file of outcomes does not keep boxd from starting.
func TestOutcomesOfAnyLengthAreLoaded(t *testing.T) {
	b := startBox(t)
	b.srv.Stop(0, "")
	f, err := os.Create(filepath.Join(b.cfg.State, "outcomes"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A line has 8 MiB, but little to remember: zeros follow the outcome, and the file is sparse.
	const lines = 33
	zeros := make([]byte, 8<<20)
	sum, last := sha256.New(), newID(t)
	at := int64(len(boxd.Headline(nil)))
	for n := range lines {
		id := last
		if n < lines-1 {
			id = newID(t)
		}
		line := fmt.Sprintf(`{"call":%q,"op":"mkdir","hash":"","answer":{}}`, id)
		for _, part := range []string{line, "\n"} {
			if _, err := f.WriteAt([]byte(part), at); err != nil {
				t.Fatal(err)
			}
			sum.Write([]byte(part))
			at += int64(len(part))
			if part == line {
				sum.Write(zeros)
				at += int64(len(zeros))
			}
		}
	}
	head := boxd.Headline(nil)
	if _, err := f.WriteAt([]byte(head[:len(head)-1-2*sha256.Size]+hex.EncodeToString(sum.Sum(nil))+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	calls := startOn(t, b.cfg).dial(1).Welcome().Calls
	if len(calls) != lines || calls[lines-1].Call != last {
		t.Errorf("%d calls were loaded, the last is %+v", len(calls), calls[len(calls)-1:])
	}
}

// TestSavedOutputsAreNotHeldInMemory: the outputs of a former life move to files beyond the budget.
func TestSavedOutputsAreNotHeldInMemory(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	small, large := newCall(t), newCall(t)
	for call, script := range map[sandbox.Call]string{small: "echo small", large: "seq 1 100000"} {
		if _, err := c.Exec(t.Context(), call, sh(script), sandbox.ExecOptions{Stdout: io.Discard}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Stop(t.Context(), wire.StopRequest{}); err != nil {
		t.Fatal(err)
	}
	next := startOn(t, b.cfg)
	if n := next.srv.SpoolMemory(); n != int64(len("small\n")) {
		t.Errorf("%d bytes of saved output are held in memory", n)
	}
	n := next.dial(1)
	var want strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&want, i+1)
	}
	for call, want := range map[sandbox.Call]string{small: "small\n", large: want.String()} {
		var out bytes.Buffer
		if _, err := n.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true, Stdout: &out}); err != nil || out.String() != want {
			t.Errorf("%d bytes of %d, %v", out.Len(), len(want), err)
		}
	}
}

// blindHands cannot list processes the first times.
type blindHands struct {
	*boxd.OSHands
	asked atomic.Int64
}

func (h *blindHands) Processes() ([]wire.Process, error) {
	if h.asked.Add(1) <= 5 {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "test", "no descriptor is free")
	}
	return h.OSHands.Processes()
}

// TestProcessesThatCannotBeListedHaveNotEnded: a stop that cannot list the processes still gives
// them the time to end by themselves.
func TestProcessesThatCannotBeListedHaveNotEnded(t *testing.T) {
	b := startBox(t, func(c *boxd.Config) { c.Hands = &blindHands{OSHands: hands()} })
	c := b.dial(1)
	up := &watcher{want: "up\n", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), newCall(t), sh("trap 'trap : TERM; sleep 0.3; echo saved > saved; exit 0' TERM; echo up; while :; do sleep 0.01; done"), sandbox.ExecOptions{Stdout: up})
		ended <- err
	}()
	up.wait(t)
	if _, err := c.Stop(t.Context(), wire.StopRequest{GraceMS: 20_000}); err != nil {
		t.Fatal(err)
	}
	<-ended
	if got := read(t, filepath.Join(b.cfg.Workspace, "saved")); got != "saved\n" {
		t.Errorf("the process could not save its work: %q", got)
	}
}
