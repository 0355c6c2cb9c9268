package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

var execNothing = sandbox.ExecOptions{}

// safeBuffer is a bytes.Buffer that can be read while another goroutine writes to it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func execCases() []testCase {
	return []testCase{
		{name: "Exec/Shell", run: execShell},
		{name: "Exec/ArgvIsVerbatim", run: execArgv},
		{name: "Exec/StderrApart", run: execStderr},
		{name: "Exec/Merge", run: execMerge},
		{name: "Exec/ClassExit", run: classExit},
		{name: "Exec/ClassSignal", run: classSignal},
		{name: "Exec/ClassTimeoutKillsAll", run: classTimeout},
		{name: "Exec/ClassErrorNoProgram", run: classNoProgram},
		{name: "Exec/ClassErrorNoDirectory", run: classNoDirectory},
		{name: "Exec/EnvAndCwd", run: execEnv},
		{name: "Exec/BadRequestIsInvalid", run: execInvalid},
		{name: "Exec/KillIsSoftThenHard", run: execKill},
		{name: "Exec/KillUnknownIsNotFound", run: killUnknown},
		{name: "Exec/HZ15_LeaderEndsTheCall", run: execLeader},
		{name: "Exec/Parallel", run: execParallel},
		{name: "Exec/ProcessesAndStats", run: processesAndStats},
		{name: "Exec/Terminal", needs: needTerminals, run: execTerminal},
		{name: "Exec/Gate", run: execGate},
	}
}

func streamCases() []testCase {
	return []testCase{
		{name: "Stream/Stdin", run: streamStdin},
		{name: "Stream/LongOutput", run: streamLong},
		{name: "Stream/BinaryOutput", run: streamBinary},
		{name: "Stream/FromOffset", run: streamOffset},
		{name: "Stream/LiveOutput", run: streamLive},
		{name: "Stream/ContextEndsTheWaitOnly", run: streamContext},
		{name: "Stream/KillOnDetach", run: streamKillOnDetach},
		{name: "Stream/SurvivesTheConnection", run: streamSurvives},
		{name: "Stream/AttachOnlyStartsNothing", run: attachOnly},
		{name: "Stream/TwoReaders", run: twoReaders},
		{name: "Stream/WriteErrorDetachesOnly", run: writeError},
	}
}

func execShell(f *fixture) {
	o := f.exec(f.box("a"), wire.ExecRequest{Shell: "echo one; echo two && echo three"})
	f.equal("stdout", o.out, "one\ntwo\nthree\n")
	if o.Class != holdfast.ExitOK || o.Code != 0 || o.StdoutBytes != 14 || o.StderrBytes != 0 || o.DurationMS <= 0 {
		f.Fatalf("result %+v", o.ExecResult)
	}
}

func execArgv(f *fixture) {
	o := f.exec(f.box("a"), wire.ExecRequest{Argv: []string{"printf", "%s|", "a b", "$HOME", "*", "", `"q"`}})
	f.equal("stdout", o.out, `a b|$HOME|*||"q"|`)
}

func execStderr(f *fixture) {
	o := f.exec(f.box("a"), wire.ExecRequest{Shell: "echo out; echo err >&2"})
	f.equal("stdout", o.out, "out\n")
	f.equal("stderr", o.err, "err\n")
}

func execMerge(f *fixture) {
	o := f.exec(f.box("a"), wire.ExecRequest{Shell: "echo 1; echo 2 >&2; echo 3", Merge: true})
	f.equal("stdout", o.out, "1\n2\n3\n")
	f.equal("stderr", o.err, "")
}

func classExit(f *fixture) {
	b := f.box("a")
	for _, code := range []int{1, 3, 137, 255} {
		o := f.exec(b, wire.ExecRequest{Shell: fmt.Sprintf("exit %d", code)})
		if o.Class != holdfast.ExitExit || o.Code != code || o.Signal != "" {
			f.Fatalf("exit %d: %+v", code, o.ExecResult)
		}
	}
	if o := f.exec(b, wire.ExecRequest{Argv: []string{"false"}}); o.Class != holdfast.ExitExit || o.Code != 1 {
		f.Fatalf("false: %+v", o.ExecResult)
	}
}

func classSignal(f *fixture) {
	b := f.box("a")
	for _, sig := range []string{"TERM", "KILL", "SEGV"} {
		o := f.exec(b, wire.ExecRequest{Shell: "kill -" + sig + " $$; sleep 600"})
		if o.Class != holdfast.ExitSignal || o.Code != -1 || o.Signal != "SIG"+sig {
			f.Fatalf("%s: %+v", sig, o.ExecResult)
		}
	}
}

func classTimeout(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	script := "setsid sh -c '" + beat + "' > /dev/null 2>&1 & echo begun; while [ ! -s beat ]; do sleep 0.02; done; sleep 600"
	o := f.exec(b, wire.ExecRequest{Shell: script, TimeoutMS: 1500})
	if o.Class != holdfast.ExitTimeout || o.Message == "" {
		f.Fatalf("result %+v", o.ExecResult)
	}
	f.equal("output before the end", o.out, "begun\n")
	still(f, filepath.Join(workspaceOf(spec), "beat"))
}

func classNoProgram(f *fixture) {
	b := f.box("a")
	for _, argv := range []string{"no-such-program", "/no/such/program"} {
		o := f.exec(b, wire.ExecRequest{Argv: []string{argv}})
		if o.Class != holdfast.ExitError || o.Message == "" {
			f.Fatalf("%s: %+v", argv, o.ExecResult)
		}
	}
	o := f.exec(b, wire.ExecRequest{Shell: "no-such-program"})
	if o.Class != holdfast.ExitExit || o.Code != 127 || o.err == "" {
		f.Fatalf("in a shell: %+v, %q", o.ExecResult, o.err)
	}
}

func classNoDirectory(f *fixture) {
	o := f.exec(f.box("a"), wire.ExecRequest{Argv: []string{"true"}, Cwd: "no/such/dir"})
	if o.Class != holdfast.ExitError || o.Message == "" {
		f.Fatalf("result %+v", o.ExecResult)
	}
}

func execEnv(f *fixture) {
	b := f.box("a")
	f.sh(b, "mkdir -p sub")
	o := f.exec(b, wire.ExecRequest{
		Shell: `echo "$OWN"; pwd; [ -n "$HOME" ] && [ -n "$PATH" ] && [ -n "$TMPDIR" ] && echo set`,
		Env:   []string{"OWN=x y=z"}, Cwd: "sub",
	})
	if f.cfg.FixedPaths {
		f.equal("output", o.out, "x y=z\n/workspace/sub\nset\n")
	}
	if !strings.HasPrefix(o.out, "x y=z\n") || !strings.HasSuffix(o.out, "/sub\nset\n") {
		f.Fatalf("output %q", o.out)
	}
	f.equal("the next call", f.sh(b, `echo "$OWN"`), "\n")
}

func execInvalid(f *fixture) {
	b := f.box("a")
	for _, req := range []wire.ExecRequest{
		{},
		{Argv: []string{"true"}, Shell: "true"},
		{Argv: []string{""}},
		{Argv: []string{"true\x00x"}},
		{Shell: "true", Env: []string{"NOVALUE"}},
		{Shell: "true", TimeoutMS: -1},
	} {
		_, err := b.Exec(f.ctx, f.call(), req, execNothing)
		f.kind(err, holdfast.KindInvalid)
	}
	f.sh(b, "true")
}

func execKill(f *fixture) {
	b := f.box("a")
	soft := f.call()
	g := f.begin(b, soft, wire.ExecRequest{Shell: "echo up; sleep 600"})
	f.eventually("output", func() bool { return g.out.String() == "up\n" })
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: soft.ID, GraceMS: 20_000}))
	f.await("the end", g.done)
	f.must(g.err)
	if g.res.Class != holdfast.ExitCanceled {
		f.Fatalf("soft: %+v", g.res)
	}
	hard := f.call()
	g = f.begin(b, hard, wire.ExecRequest{Shell: "trap '' TERM; echo up; while true; do sleep 0.02; done"})
	f.eventually("output", func() bool { return g.out.String() == "up\n" })
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: hard.ID, GraceMS: 50}))
	f.await("the end", g.done)
	f.must(g.err)
	if g.res.Class != holdfast.ExitCanceled || g.res.Code != -1 {
		f.Fatalf("hard: %+v", g.res)
	}
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: hard.ID}))
}

func killUnknown(f *fixture) {
	err := f.box("a").Kill(f.ctx, wire.KillRequest{Call: f.call().ID})
	f.kind(err, holdfast.KindNotFound)
}

// execLeader tests that an exec ends when its leader exits, even if its pipes are still open, and
// that it names the processes that it left running.
func execLeader(f *fixture) {
	b := f.box("a")
	call := f.call()
	o := f.execAs(b, call, wire.ExecRequest{Shell: "sleep 600 & echo started"})
	f.equal("output", o.out, "started\n")
	if o.Class != holdfast.ExitOK || len(o.Left) == 0 {
		f.Fatalf("result %+v", o.ExecResult)
	}
	list, err := b.Processes(f.ctx)
	f.must(err)
	if len(list) == 0 || slices.ContainsFunc(list, func(p wire.Process) bool { return p.Leader }) {
		f.Fatalf("what it left is listed as %+v", list)
	}
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: call.ID}))
	f.eventually("the end of what it left", func() bool {
		list, err := b.Processes(f.ctx)
		return err == nil && len(list) == 0
	})
}

func execParallel(f *fixture) {
	b := f.box("a")
	const n = 24
	var wg sync.WaitGroup
	outs, errs := make([]safeBuffer, n), make([]error, n)
	for i := range n {
		call := f.call()
		wg.Go(func() {
			req := wire.ExecRequest{Shell: fmt.Sprintf("echo %d; sleep 0.05; echo %d", i, i)}
			_, errs[i] = b.Exec(f.ctx, call, req, sandbox.ExecOptions{Stdout: &outs[i]})
		})
	}
	wg.Wait()
	for i := range n {
		f.must(errs[i])
		f.equal("output", outs[i].String(), fmt.Sprintf("%d\n%d\n", i, i))
	}
}

func processesAndStats(f *fixture) {
	b := f.box("a")
	call := f.call()
	g := f.begin(b, call, wire.ExecRequest{Argv: []string{"sleep", "600"}})
	f.await("the start", g.started)
	f.eventually("the process", func() bool {
		list, err := b.Processes(f.ctx)
		f.must(err)
		return len(list) == 1 && list[0].Name == "sleep" && list[0].PID > 0 && list[0].Leader
	})
	s, err := b.Stats(f.ctx)
	f.must(err)
	if s.Running != 1 || s.Held != 1 {
		f.Fatalf("stats %+v", s)
	}
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: call.ID}))
	f.await("the end", g.done)
	s, err = b.Stats(f.ctx)
	f.must(err)
	if s.Running != 0 || s.Held != 1 {
		f.Fatalf("stats after the end %+v", s)
	}
}

func execTerminal(f *fixture) {
	b := f.box("a")
	resize := make(chan wire.Size, 1)
	in, typed := io.Pipe()
	defer typed.Close()
	var out safeBuffer
	done := make(chan error, 1)
	go func() {
		_, err := b.Exec(f.ctx, f.call(), wire.ExecRequest{
			Shell: `stty size; while [ "$(stty size)" = "33 101" ]; do sleep 0.02; done; stty size; read x; echo got:$x; tty > /dev/null && echo isatty`,
			PTY:   &wire.Size{Rows: 33, Cols: 101}, KillOnDetach: true,
		}, sandbox.ExecOptions{Stdout: &out, Stdin: in, Resize: resize})
		done <- err
	}()
	f.eventually("the first size", func() bool { return strings.Contains(out.String(), "33 101") })
	resize <- wire.Size{Rows: 44, Cols: 55}
	f.eventually("the second size", func() bool { return strings.Contains(out.String(), "44 55") })
	if _, err := io.WriteString(typed, "hello\n"); err != nil {
		f.Fatal(err)
	}
	select {
	case err := <-done:
		f.must(err)
	case <-f.ctx.Done():
		f.Fatalf("the terminal's exec did not end; it showed %q", out.String())
	}
	if got := out.String(); !strings.Contains(got, "got:hello") || !strings.Contains(got, "isatty") {
		f.Fatalf("the terminal showed %q", got)
	}
}

// execGate tests that a closed gate delays starts of processes, and nothing else.
func execGate(f *fixture) {
	b := f.box("a")
	f.must(b.Gate(f.ctx, true))
	call := f.call()
	g := f.begin(b, call, wire.ExecRequest{Shell: "echo x >> ran"})
	for range 20 {
		_, err := b.Stats(f.ctx)
		f.must(err)
	}
	f.equal("effect behind the gate", f.read(b, "ran"), "")
	f.must(b.Gate(f.ctx, true))
	f.must(b.Gate(f.ctx, false))
	f.await("the end", g.done)
	f.must(g.err)
	f.equal("effect", f.read(b, "ran"), "x\n")
}

func streamStdin(f *fixture) {
	b := f.box("a")
	text := strings.Repeat("line of text\n", 20_000)
	var out bytes.Buffer
	res, err := b.Exec(f.ctx, f.call(), wire.ExecRequest{Argv: []string{"cat"}, Stdin: true},
		sandbox.ExecOptions{Stdin: strings.NewReader(text), Stdout: &out})
	f.must(err)
	if res.Class != holdfast.ExitOK || out.String() != text {
		f.Fatalf("%+v: %d bytes of %d came back", res, out.Len(), len(text))
	}
	// Without Stdin in the request, the process has an empty stdin, not an open one.
	f.equal("no stdin", f.sh(b, "cat; echo end"), "end\n")
}

func streamLong(f *fixture) {
	b := f.box("a")
	const n = 60_000
	o := f.exec(b, wire.ExecRequest{Argv: []string{"seq", fmt.Sprint(n)}})
	if o.out != lines(n) {
		f.Fatalf("%d bytes of output, want %d", len(o.out), len(lines(n)))
	}
	if o.StdoutBytes != int64(len(o.out)) || o.StdoutDropped != 0 {
		f.Fatalf("counts %+v", o.ExecResult)
	}
}

func streamBinary(f *fixture) {
	b := f.box("a")
	data := make([]byte, 100_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	_, err := b.Write(f.ctx, f.call(), wire.WriteRequest{Path: "bin"}, data)
	f.must(err)
	if out := f.sh(b, "cat bin"); out != string(data) {
		f.Fatalf("%d bytes came back, not the %d that were written", len(out), len(data))
	}
}

func streamOffset(f *fixture) {
	b := f.box("a")
	call := f.call()
	req := wire.ExecRequest{Shell: "echo x >> ran; printf 0123456789; printf abcdef >&2"}
	f.execAs(b, call, req)
	var out, errw bytes.Buffer
	res, err := b.Exec(f.ctx, call, req, sandbox.ExecOptions{Stdout: &out, Stderr: &errw, StdoutFrom: 4, StderrFrom: 6})
	f.must(err)
	f.equal("stdout from 4", out.String(), "456789")
	f.equal("stderr from 6", errw.String(), "")
	if res.StdoutBytes != 10 || res.StderrBytes != 6 {
		f.Fatalf("result %+v", res)
	}
	f.equal("times it ran", f.read(b, "ran"), "x\n")
}

func streamLive(f *fixture) {
	b := f.box("a")
	g := f.begin(b, f.call(), wire.ExecRequest{Shell: "echo first; while [ ! -f go ]; do sleep 0.02; done; echo second"})
	f.eventually("output of a running call", func() bool { return g.out.String() == "first\n" })
	f.write(b, "go", "")
	f.await("the end", g.done)
	f.must(g.err)
	f.equal("output", g.out.String(), "first\nsecond\n")
}

func streamContext(f *fixture) {
	b := f.box("a")
	call := f.call()
	req := wire.ExecRequest{Shell: "echo begun; while [ ! -f go ]; do sleep 0.02; done; echo x >> ran"}
	g := f.begin(b, call, req)
	f.await("the start", g.started)
	g.cancel()
	f.await("the end of the wait", g.done)
	if g.err == nil || context.Cause(f.ctx) != nil {
		f.Fatalf("exec with an ended context: %v", g.err)
	}
	f.equal("status", string(f.status(b, call)), string(wire.CallRunning))
	f.write(b, "go", "")
	o := f.execAs(b, call, req)
	f.equal("output", o.out, "begun\n")
	f.equal("times it ran", f.read(b, "ran"), "x\n")
}

func streamKillOnDetach(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	g := f.begin(b, call, wire.ExecRequest{Shell: beat, KillOnDetach: true})
	path := filepath.Join(workspaceOf(spec), "beat")
	f.eventually("a heartbeat", func() bool { return size(path) > 0 })
	g.cancel()
	f.await("the end of the wait", g.done)
	f.eventually("that it is forgotten", func() bool { return f.status(b, call) == "" })
	still(f, path)
}

// streamSurvives tests that a call continues when the connection breaks, can be attached to by its
// id, and returns its output from any offset.
func streamSurvives(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	req := wire.ExecRequest{Shell: "echo begun; while [ ! -f go ]; do sleep 0.02; done; echo x >> ran; echo done"}
	g := f.begin(b, call, req)
	f.eventually("output", func() bool { return g.out.String() == "begun\n" })
	f.must(b.Close())
	f.must(b.Close())
	f.await("the end of the exec", g.done)
	f.kind(g.err, holdfast.KindUnavailable)
	b = f.dial(spec.Box, 1)
	f.write(b, "go", "")
	var out bytes.Buffer
	res, err := b.Exec(f.ctx, call, req, sandbox.ExecOptions{Stdout: &out, StdoutFrom: 6})
	f.must(err)
	if res.Class != holdfast.ExitOK {
		f.Fatalf("result %+v", res)
	}
	f.equal("the rest", out.String(), "done\n")
	f.equal("times it ran", f.read(b, "ran"), "x\n")
}

func attachOnly(f *fixture) {
	b := f.box("a")
	_, err := b.Exec(f.ctx, f.call(), wire.ExecRequest{Shell: "echo x >> ran"}, sandbox.ExecOptions{AttachOnly: true})
	f.kind(err, holdfast.KindNotFound)
	f.equal("effect", f.read(b, "ran"), "")
}

func twoReaders(f *fixture) {
	b := f.box("a")
	call := f.call()
	req := wire.ExecRequest{Shell: "echo begun; while [ ! -f go ]; do sleep 0.02; done; echo done"}
	first, second := f.begin(b, call, req), f.begin(b, call, req)
	for _, g := range []*background{first, second} {
		f.eventually("output", func() bool { return g.out.String() == "begun\n" })
	}
	f.write(b, "go", "")
	for _, g := range []*background{first, second} {
		f.await("the end", g.done)
		f.must(g.err)
		f.equal("output", g.out.String(), "begun\ndone\n")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func writeError(f *fixture) {
	b := f.box("a")
	_, err := b.Exec(f.ctx, f.call(), wire.ExecRequest{Shell: "seq 1000; echo x >> ran"}, sandbox.ExecOptions{Stdout: brokenWriter{}})
	f.must(err)
	f.equal("effect", f.read(b, "ran"), "x\n")
}
