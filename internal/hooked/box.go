package hooked

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// boxRunner runs hooks in a session's box. If the same start of the box has got a run before, for example before a
// restart of the server, boxRunner attaches to that run or fetches its result. It does not repeat a run whose box ends
// meanwhile.
type boxRunner struct {
	box func(ctx context.Context) (*sandbox.Box, error)
	// began is called with the call id and the box before a hook's call is sent to the box.
	began func(call holdfast.CallID, box *sandbox.Box)
}

// hookTries is how many times a hook's call is sent, with the same id, if the connection to its box
// breaks.
const hookTries = 4

// Run implements hook.Runner.
func (b *boxRunner) Run(ctx context.Context, c hook.Command) (hook.Exit, error) {
	boot := ""
	for n := 0; ; n++ {
		box, err := b.box(ctx)
		if err != nil {
			return hook.Exit{}, err
		}
		if boot != "" && box.Boot() != boot {
			return hook.Exit{}, holdfast.Errorf(holdfast.KindUnavailable, "hook", "the sandbox ended while the hook ran")
		}
		boot = box.Boot()
		b.began(c.Call, box)
		exit, err := hookExec(ctx, box, c)
		if holdfast.IsKind(err, holdfast.KindUnavailable) && ctx.Err() == nil && n+1 < hookTries {
			continue
		}
		return exit, err
	}
}

// hookExec runs a hook's command in a box, or attaches to it.
func hookExec(ctx context.Context, box *sandbox.Box, c hook.Command) (hook.Exit, error) {
	kill := func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// The error is ignored: if the box does not answer, the call ends at its timeout.
		_ = box.Kill(short, wire.KillRequest{Call: c.Call})
	}
	var killing sync.WaitGroup
	var once sync.Once
	over := func() { once.Do(func() { killing.Go(kill) }) }
	stdout, stderr := &hook.Bounded{Over: over}, &hook.Bounded{Over: over}
	in := &lateStdin{data: c.Stdin, ready: make(chan struct{}), done: make(chan struct{})}
	res, err := box.Exec(ctx, sandbox.Call{ID: c.Call}, wire.ExecRequest{
		Argv: []string{"/bin/bash", "-c", c.Shell}, Env: c.Env, TimeoutMS: max(c.Timeout.Milliseconds(), 1),
	}, sandbox.ExecOptions{Stdout: stdout, Stderr: stderr, Stdin: in, Started: in.started})
	close(in.done)
	killing.Wait()
	if err != nil {
		if ctx.Err() != nil {
			kill()
			err = holdfast.Errorf(holdfast.KindUnavailable, "hook", "the hook was stopped before it finished: %w", context.Cause(ctx))
		}
		return hook.Exit{}, err
	}
	exit := hook.Exit{Code: res.Code, Signal: res.Signal, TimedOut: res.Class == holdfast.ExitTimeout}
	var flooded [2]bool
	exit.Stdout, flooded[0] = stdout.Bytes()
	exit.Stderr, flooded[1] = stderr.Bytes()
	exit.Flooded = flooded[0] || flooded[1] || res.StdoutDropped+res.StderrDropped > 0
	switch res.Class {
	case holdfast.ExitError:
		return exit, holdfast.Errorf(holdfast.KindUnavailable, "hook", "the sandbox could not run the hook: %s", res.Message)
	case holdfast.ExitOOM, holdfast.ExitPids, holdfast.ExitCanceled:
		if exit.Signal == "" {
			exit.Signal = string(res.Class)
		}
	}
	return exit, nil
}

// lateStdin is the stdin of a call that may have received a part of it before a restart: it
// continues at the offset that the box reports.
type lateStdin struct {
	data  []byte
	ready chan struct{}
	done  chan struct{}
	rest  io.Reader
}

func (l *lateStdin) started(s wire.Started) {
	l.rest = bytes.NewReader(l.data[min(max(s.StdinTaken, 0), int64(len(l.data))):])
	close(l.ready)
}

// Read implements io.Reader.
func (l *lateStdin) Read(p []byte) (int, error) {
	select {
	case <-l.ready:
		return l.rest.Read(p)
	case <-l.done:
		return 0, io.EOF
	}
}
