package hook

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Host runs commands of hooks on the host, as the user that the program runs as. Each command
// has its own process group, which is killed when the command ends, takes too long or writes too
// much. Host does not remember calls: after a crash a command may run a second time.
type Host struct {
	// Environ is the program's environment. Commands inherit only HOME, TMPDIR and the variables
	// for which sandbox.Inherits returns true.
	Environ []string
	// Dir is the working directory of the commands; required. Agents should have no access to
	// it.
	Dir string
}

// afterKill is how long Run waits for the output pipes of a killed command to close.
const afterKill = 5 * time.Second

// Run implements Runner.
func (h Host) Run(ctx context.Context, c Command) (Exit, error) {
	timeout, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.Command("/bin/bash", "-c", c.Shell)
	cmd.Env, cmd.Dir = append(h.environ(), c.Env...), h.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdin = bytes.NewReader(c.Stdin)
	cmd.WaitDelay = afterKill
	flood := make(chan struct{})
	var flooded atomic.Bool
	over := func() {
		if !flooded.Swap(true) {
			close(flood)
		}
	}
	stdout, stderr := &Bounded{Over: over}, &Bounded{Over: over}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		return Exit{}, holdfast.Errorf(holdfast.KindUnavailable, op, "the hook's command could not be started: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(cmd.Process.Pid)
	}()
	var exit Exit
	select {
	case <-exited:
	case <-flood:
	case <-timeout.Done():
		exit.TimedOut = ctx.Err() == nil
	}
	// Kill all processes that the hook left running. The leader is not reaped yet, so the group
	// id cannot have been reused.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-exited
	err := cmd.Wait()
	exit.Stdout, _ = stdout.Bytes()
	exit.Stderr, _ = stderr.Bytes()
	exit.Flooded = flooded.Load()
	if ctx.Err() != nil {
		return exit, holdfast.Errorf(holdfast.KindUnavailable, op, "the hook's command was killed: %w", context.Cause(ctx))
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return exit, holdfast.Errorf(holdfast.KindInternal, op, "the hook's command ended without an exit status: %w", err)
	case status.Signaled():
		exit.Signal = status.Signal().String()
	default:
		exit.Code = status.ExitStatus()
	}
	var other *exec.ExitError
	if err != nil && !errors.As(err, &other) && !errors.Is(err, exec.ErrWaitDelay) && !errors.Is(err, syscall.EPIPE) && exit.Code == 0 && exit.Signal == "" {
		return exit, holdfast.Errorf(holdfast.KindUnavailable, op, "the streams of the hook's command could not be read or written: %w", err)
	}
	return exit, nil
}

// environ returns the variables that a command on the host inherits. The session's environment is
// not among them, so that its creator cannot influence the commands of the server's owner.
func (h Host) environ() []string {
	var out []string
	for _, kv := range h.Environ {
		name, _, ok := strings.Cut(kv, "=")
		if ok && (sandbox.Inherits(name) || name == "HOME" || name == "TMPDIR") {
			out = append(out, kv)
		}
	}
	return out
}
