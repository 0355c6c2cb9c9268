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

// Host runs commands on the host, as the user of the program, each in a process
// group of its own that ends with it. It keeps no Call: after a crash a command
// may run once more.
type Host struct {
	// Environ is the program's environment; the commands get what the allow table
	// names of it, and HOME and TMPDIR.
	Environ []string
	// Dir is where commands start; required. It should be out of agents' reach.
	Dir string
}

// afterKill is how long the pipes of a killed command are waited for.
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
		return Exit{}, holdfast.Errorf(holdfast.KindUnavailable, op, "it could not be started: %w", err)
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
	// The leader is not reaped yet, so the group is still this command's. A hook
	// leaves nothing running.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-exited
	err := cmd.Wait()
	exit.Stdout, _ = stdout.Bytes()
	exit.Stderr, _ = stderr.Bytes()
	exit.Flooded = flooded.Load()
	if ctx.Err() != nil {
		return exit, holdfast.Errorf(holdfast.KindUnavailable, op, "it was ended: %w", context.Cause(ctx))
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return exit, holdfast.Errorf(holdfast.KindInternal, op, "it ended without a status: %w", err)
	case status.Signaled():
		exit.Signal = status.Signal().String()
	default:
		exit.Code = status.ExitStatus()
	}
	var other *exec.ExitError
	if err != nil && !errors.As(err, &other) && !errors.Is(err, exec.ErrWaitDelay) && !errors.Is(err, syscall.EPIPE) && exit.Code == 0 && exit.Signal == "" {
		return exit, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	return exit, nil
}

// environ is what a command on the host inherits. Nothing of a session's own
// environment: whoever makes a session would choose what the owner's commands do.
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
