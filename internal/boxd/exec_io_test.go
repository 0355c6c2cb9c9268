//go:build linux

package boxd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestExecStdin(t *testing.T) {
	c := startBox(t).dial(1)
	big := strings.Repeat("0123456789abcdef", 200_000) // 3.2 MB, more than any buffer
	res, out, _ := run(t, c, wire.ExecRequest{Argv: []string{"cat"}}, sandbox.ExecOptions{Stdin: strings.NewReader(big)})
	if out != big || res.Class != holdfast.ExitOK {
		t.Errorf("cat gave %d of %d bytes, %+v", len(out), len(big), res)
	}
	res, out, _ = run(t, c, sh("cat; echo end"), sandbox.ExecOptions{})
	if out != "end\n" || res.Class != holdfast.ExitOK {
		t.Errorf("without stdin: %q %+v", out, res)
	}
	// A process that does not read must not hold up its own end.
	res, _, _ = run(t, c, sh("exit 5"), sandbox.ExecOptions{Stdin: strings.NewReader(big)})
	if res.Code != 5 {
		t.Errorf("unread stdin: %+v", res)
	}
}

func TestExecMergedOutputKeepsOrder(t *testing.T) {
	c := startBox(t).dial(1)
	res, out, errs := run(t, c, wire.ExecRequest{Shell: "for i in 1 2 3; do echo o$i; echo e$i >&2; done", Merge: true}, sandbox.ExecOptions{})
	if out != "o1\ne1\no2\ne2\no3\ne3\n" || errs != "" || res.StderrBytes != 0 {
		t.Errorf("merged %q %q %+v", out, errs, res)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestExecWriterErrorDetachesOutputOnly(t *testing.T) {
	c := startBox(t).dial(1)
	res, _, errs := run(t, c, sh("echo lost; echo kept >&2; exit 4"), sandbox.ExecOptions{Stdout: broken{}})
	if res.Code != 4 || errs != "kept\n" {
		t.Errorf("%+v %q", res, errs)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestExecPTY(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	out := &watcher{want: "40 100", seen: make(chan struct{})}
	resize := make(chan wire.Size, 1)
	in, keys := io.Pipe()
	defer keys.Close()
	up := &watcher{want: "ready", seen: make(chan struct{})}
	go func() {
		<-up.seen
		resize <- wire.Size{Rows: 40, Cols: 100}
		for {
			select {
			case <-out.seen:
				_, _ = keys.Write([]byte("typed\n\x04"))
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := keys.Write([]byte("\n")); err != nil { // asks again
					return
				}
			}
		}
	}()
	req := wire.ExecRequest{PTY: &wire.Size{Rows: 24, Cols: 80}, Shell: `test -t 0 && test -t 1 && test -t 2 && echo tty; stty size; echo ready;
		until [ "$(stty size)" = "40 100" ]; do read x; done; stty size; while [ "$x" != typed ]; do read x; done; echo got $x; cat; exit 6`}
	res, err := c.Exec(t.Context(), newCall(t), req, sandbox.ExecOptions{Stdout: io.MultiWriter(out, up), Stdin: in, Resize: resize})
	if err != nil || res.Code != 6 {
		t.Fatalf("%+v %v %q", res, err, out.String())
	}
	got := strings.ReplaceAll(out.String(), "\r", "")
	for _, want := range []string{"tty\n", "24 80\n", "40 100\n", "got typed\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("terminal shows %q, want %q", got, want)
		}
	}
}

// TestExecPTYDeliversAllAndEnds: the last bytes of a terminal come after its
// leader's end, and a background process that keeps it open holds nothing up.
func TestExecPTYDeliversAllAndEnds(t *testing.T) {
	c := startBox(t).dial(1)
	size := &wire.Size{Rows: 24, Cols: 80}
	for range 5 {
		res, out, _ := run(t, c, wire.ExecRequest{Shell: "seq 1 20000", PTY: size}, sandbox.ExecOptions{})
		if lines := strings.Count(out, "\r\n"); lines != 20000 || int64(len(out)) != res.StdoutBytes || !strings.HasSuffix(out, "20000\r\n") {
			t.Fatalf("%d lines, %d bytes of %d", lines, len(out), res.StdoutBytes)
		}
	}
	call := newCall(t)
	var out bytes.Buffer
	res, err := c.Exec(t.Context(), call, wire.ExecRequest{Shell: "trap '' HUP; sleep 600 & echo now", PTY: size}, sandbox.ExecOptions{Stdout: &out})
	if err != nil || out.String() != "now\r\n" || len(res.Left) == 0 {
		t.Errorf("%+v %v %q", res, err, out.String())
	}
	if err := c.Kill(t.Context(), wire.KillRequest{Call: call.ID}); err != nil {
		t.Error(err)
	}
	if st, err := c.Stats(t.Context()); err != nil || st.Running != 0 {
		t.Errorf("%+v %v", st, err)
	}
}

func TestExecSignalReachesForeground(t *testing.T) {
	// While bash waits for a program in the foreground it forgets a SIGINT of which that program does not die.
	const shell = "trap 'kill $!; echo caught; exit 7' INT; sleep 30 & echo up; wait"
	c := startBox(t).dial(1)
	for name, pty := range map[string]*wire.Size{"pipes": nil, "terminal": {Rows: 24, Cols: 80}} {
		t.Run(name, func(t *testing.T) {
			out := &watcher{want: "up", seen: make(chan struct{})}
			sig := make(chan int, 1)
			go func() { <-out.seen; sig <- 2 }()
			res, err := c.Exec(t.Context(), newCall(t), wire.ExecRequest{PTY: pty, Shell: shell},
				sandbox.ExecOptions{Stdout: out, Signal: sig})
			if err != nil || res.Code != 7 || !strings.Contains(out.String(), "caught") {
				t.Errorf("%+v %v %q", res, err, out.String())
			}
		})
	}
}

// TestHZ4_PrinterCostsNoMemory: a child prints far more than any buffer.
//
// WS-N3.
func TestHZ4_PrinterCostsNoMemory(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	var before, peak runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const total = 300 << 20
	sink := &counter{}
	res, err := c.Exec(t.Context(), newCall(t), sh(fmt.Sprintf("yes | head -c %d", total)), sandbox.ExecOptions{Stdout: sink})
	if err != nil || res.StdoutBytes != total {
		t.Fatalf("%+v %v", res, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&peak)
	if peak.HeapInuse > before.HeapInuse+16<<20 || peak.Sys > before.Sys+96<<20 {
		t.Errorf("heap went from %d to %d, system from %d to %d", before.HeapInuse, peak.HeapInuse, before.Sys, peak.Sys)
	}
	if held := res.StdoutBytes - res.StdoutDropped; held > 8<<20 || held < 7<<20 {
		t.Errorf("%d bytes are held, want 8 MiB", held)
	}
	if sink.n+sink.gaps != total {
		t.Errorf("client got %d bytes and %d in gaps of %d", sink.n, sink.gaps, total)
	}
}

type counter struct{ n, gaps int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

func (c *counter) Gap(from, to int64) { c.gaps += to - from }

// TestSlowClientDoesNotStallChild: nobody reads, the child ends all the same.
//
// WS-N3.
func TestSlowClientDoesNotStallChild(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	stuck := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	call := newCall(t)
	go func() {
		defer close(done)
		_, _ = c.Exec(ctx, call, sh("yes | head -c 20000000; touch finished"), sandbox.ExecOptions{Stdout: stall{stuck}})
	}()
	eventually(t, "the child finished", func() bool {
		_, err := os.Stat(filepath.Join(b.cfg.Workspace, "finished"))
		return err == nil
	})
	cancel()
	close(stuck)
	<-done
	sink := &counter{}
	res, err := c.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: sink, AttachOnly: true})
	if err != nil || sink.n+sink.gaps != 20000000 || res.StdoutDropped != sink.gaps {
		t.Errorf("%+v %v, %d and %d", res, err, sink.n, sink.gaps)
	}
}

type stall struct{ until chan struct{} }

func (s stall) Write(p []byte) (int, error) { <-s.until; return len(p), nil }

func TestOutputIsReadableFromAnyOffset(t *testing.T) {
	b := startBox(t)
	c := b.dial(1)
	call := newCall(t)
	var all bytes.Buffer
	if _, err := c.Exec(t.Context(), call, sh("seq 1 50000; seq 1 10 >&2"), sandbox.ExecOptions{Stdout: &all}); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int{0, 1, 65535, 65536, 65537, 200000, all.Len() - 1, all.Len(), all.Len() + 10} {
		c := b.dial(1) // a new connection each time
		var part bytes.Buffer
		if _, err := c.Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: &part, StdoutFrom: int64(off), AttachOnly: true}); err != nil {
			t.Fatal(err)
		}
		if want := all.Bytes()[min(off, all.Len()):]; !bytes.Equal(part.Bytes(), want) {
			t.Errorf("from %d: %d bytes, want %d", off, part.Len(), len(want))
		}
	}
}

func TestHZ12_LinesAreWhole(t *testing.T) {
	c := startBox(t).dial(1)
	sink := &lineSink{}
	// Half a line, a pause, its end; then many; then one without an end.
	script := `printf 'half'; sleep 0.05; printf ' whole\n'; seq 1 100000; printf 'end'`
	res, err := c.Exec(t.Context(), newCall(t), wire.ExecRequest{Shell: script, Lines: true}, sandbox.ExecOptions{Stdout: sink})
	if err != nil {
		t.Fatal(err)
	}
	if sink.cut > 1 || !strings.HasPrefix(sink.all.String(), "half whole\n1\n2\n") || !strings.HasSuffix(sink.all.String(), "100000\nend") {
		t.Errorf("%d writes end within a line", sink.cut)
	}
	if res.StdoutDropped != 0 || int64(sink.all.Len()) != res.StdoutBytes {
		t.Errorf("%+v, got %d", res, sink.all.Len())
	}
}

type lineSink struct {
	all bytes.Buffer
	cut int
}

func (s *lineSink) Write(p []byte) (int, error) {
	if !bytes.HasSuffix(p, []byte("\n")) {
		s.cut++
	}
	return s.all.Write(p)
}

func TestHZ12_LinesStallInsteadOfDropping(t *testing.T) {
	b := startBox(t, func(cfg *boxd.Config) { cfg.SpoolBytes = 2 << 20 })
	call := newCall(t)
	conn := b.pipe()
	first, err := sandbox.Dial(t.Context(), "w-test", conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	started, stuck, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = first.Exec(t.Context(), call, wire.ExecRequest{Shell: "seq 1 1000000; touch finished", Lines: true},
			sandbox.ExecOptions{Stdout: stall{stuck}, Started: func(wire.Started) { close(started) }})
	}()
	<-started
	// The client takes nothing: the process must stand still, not lose lines.
	still := 0
	eventually(t, "the process stalls", func() bool {
		if still++; !asleep(t, "seq") {
			still = 0
		}
		return still > 100
	})
	_ = conn.Close()
	close(stuck)
	<-gone
	_ = first.Close()
	if _, err := os.Stat(filepath.Join(b.cfg.Workspace, "finished")); err == nil {
		t.Fatal("the process did not wait for its reader")
	}
	var out bytes.Buffer
	res, err := b.dial(1).Exec(t.Context(), call, wire.ExecRequest{}, sandbox.ExecOptions{Stdout: &out, AttachOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); int64(out.Len()) != res.StdoutBytes || got != 1000000 {
		t.Errorf("%d of %d bytes, %d lines", out.Len(), res.StdoutBytes, got)
	}
}

func asleep(t *testing.T, name string) bool {
	procs, err := hands().Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if p.Name == name && p.State == "S" {
			return true
		}
	}
	return false
}

func TestHZ12_HalfALineToStdinIsForgotten(t *testing.T) {
	b := startBox(t)
	call := newCall(t)
	req := wire.ExecRequest{Argv: []string{"cat"}, Lines: true, Stdin: true}
	out := &watcher{want: "whole\n", seen: make(chan struct{})}
	old := b.dial(1)
	in, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := old.Exec(t.Context(), call, req, sandbox.ExecOptions{Stdin: in, Stdout: out})
		ended <- err
	}()
	_, _ = w.Write([]byte("whole\nha"))
	_, _ = w.Write([]byte("lf"))
	out.wait(t)
	next := b.dial(2) // closes the old connection
	wantKind(t, <-ended, holdfast.KindUnavailable)
	_ = w.Close()
	var got bytes.Buffer
	res, err := next.Exec(t.Context(), call, req, sandbox.ExecOptions{Stdin: strings.NewReader("next\n"), Stdout: &got})
	if err != nil || got.String() != "whole\nnext\n" || res.Class != holdfast.ExitOK {
		t.Errorf("%q %+v %v", got.String(), res, err)
	}
}
