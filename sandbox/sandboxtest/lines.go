package sandboxtest

import (
	"context"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// lineCases test what an agent CLI with a line protocol relies on when its server dies.
func lineCases() []testCase {
	return []testCase{
		{name: "Lines/HZ12_StdinIsTakenInWholeLines", run: linesStdin},
		{name: "Lines/HZ12_UntakenOutputStays", run: linesUntaken},
		{name: "Lines/LongLinesPass", run: linesLong},
		{name: "Lines/TakeRefusals", run: linesRefusals},
	}
}

// linesStdin tests that an incomplete line is dropped when its server dies, and that the next
// server learns how much stdin was taken and continues there.
func linesStdin(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	req := wire.ExecRequest{Argv: []string{"cat"}, Lines: true, Stdin: true}
	in, w := io.Pipe()
	defer w.Close()
	var out safeBuffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Exec(f.ctx, call, req, sandbox.ExecOptions{Stdin: in, Stdout: &out})
	}()
	for _, piece := range []string{"one\ntwo\nth", "re"} {
		_, err := io.WriteString(w, piece)
		f.must(err)
	}
	f.eventually("the lines", func() bool { return out.String() == "one\ntwo\n" })
	f.must(b.Close())
	f.await("the end of the exec", ended)
	b = f.dial(spec.Box, 2)
	taken := make(chan int64, 1)
	again := &afterStart{started: taken, text: "one\ntwo\nthree\n"}
	out = safeBuffer{}
	_, err := b.Exec(f.ctx, call, req, sandbox.ExecOptions{
		Stdin: again, Stdout: &out, Started: func(s wire.Started) { taken <- s.StdinTaken },
	})
	f.must(err)
	f.equal("all output", out.String(), "one\ntwo\nthree\n")
}

// afterStart is a stdin that begins at the offset up to which boxd has taken it.
type afterStart struct {
	started chan int64
	text    string
	rest    io.Reader
}

func (a *afterStart) Read(p []byte) (int, error) {
	if a.rest == nil {
		a.rest = strings.NewReader(a.text[<-a.started:])
	}
	return a.rest.Read(p)
}

// keeper is a sandbox.Taker that has read output but still needs it.
type keeper struct {
	safeBuffer
}

func (*keeper) Taken() int64 { return 0 }

// linesUntaken tests that output which a server has read but not taken is available to the next
// server, however small the spool is; the process is blocked until the output is taken.
func linesUntaken(f *fixture) {
	spec := f.spec("a")
	spec.SpoolBytes = 64 << 10
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	b := f.dial(spec.Box, 1)
	call := f.call()
	const n = 60_000
	req := wire.ExecRequest{Argv: []string{"seq", "60000"}, Lines: true}
	var read keeper
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Exec(ctx, call, req, sandbox.ExecOptions{Stdout: &read})
	}()
	f.eventually("a full spool", func() bool { return len(read.String()) >= int(spec.SpoolBytes*3/4) })
	f.equal("status", string(f.status(b, call)), string(wire.CallRunning))
	f.must(b.Close())
	f.await("the end of the exec", ended)
	b = f.dial(spec.Box, 2)
	o := f.execAs(b, call, req)
	if o.out != lines(n) {
		f.Fatalf("%d bytes of %d came", len(o.out), len(lines(n)))
	}
	if got := read.String(); !strings.HasPrefix(lines(n), got) || len(got) == len(lines(n)) {
		f.Fatalf("the first server read %d bytes", len(got))
	}
}

// linesLong tests that a line longer than a frame and than the spool arrives completely if the
// server takes the output as it comes.
func linesLong(f *fixture) {
	spec := f.spec("a")
	spec.SpoolBytes = 64 << 10
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	b := f.dial(spec.Box, 1)
	text := strings.Repeat("x", 600_000) + "\nend\n"
	var out safeBuffer
	_, err = b.Exec(f.ctx, f.call(), wire.ExecRequest{Argv: []string{"cat"}, Lines: true, Stdin: true},
		sandbox.ExecOptions{Stdin: strings.NewReader(text), Stdout: &out})
	f.must(err)
	if out.String() != text {
		f.Fatalf("%d bytes of %d came", len(out.String()), len(text))
	}
}

func linesRefusals(f *fixture) {
	b := f.box("a")
	f.kind(b.Take(f.ctx, wire.TakeRequest{Call: f.call().ID}), holdfast.KindNotFound)
	call := f.call()
	f.execAs(b, call, wire.ExecRequest{Shell: "echo x"})
	f.kind(b.Take(f.ctx, wire.TakeRequest{Call: call.ID, StdoutTo: 1}), holdfast.KindInvalid)
}
