package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	bashTimeout    = 120_000
	bashTimeoutMax = 600_000
	// killGrace is how long an interrupted command has between SIGTERM and SIGKILL.
	killGrace = 2 * time.Second
)

var bashSpec = tool.Spec{
	Name: "Bash",
	Description: "Runs a command with bash in the workspace and shows its output, stdout and stderr together. " +
		"Each call starts anew in the workspace: a cd does not last. Of output over 30000 bytes the middle is cut. " +
		"A process that should outlive the call is started with & and its output redirected.",
	Schema: schema(`{"type":"object","properties":{` +
		`"command":{"type":"string","description":"The command line"},` +
		`"timeout":{"type":"integer","minimum":1,"maximum":600000,"description":"Milliseconds after which everything the command started is killed (default 120000)"},` +
		`"description":{"type":"string","description":"What the command does, in five to ten words"}` +
		`},"required":["command"],"additionalProperties":false}`),
	Effect: tool.Mutate, Where: tool.InBox,
}

func runBash(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	req := wire.ExecRequest{Shell: in.filled("command"), Merge: true}
	req.TimeoutMS = in.number("timeout", bashTimeout, 1, bashTimeoutMax)
	in.text("description", false)
	if strings.IndexByte(req.Shell, 0) >= 0 {
		in.fail("the input field %q holds a NUL character", "command")
	}
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	out := &capture{show: func(text string) { call.Output("stdout", text) }}
	if ctx.Err() == nil {
		res, err := call.Box.Exec(ctx, sandbox.Call{ID: call.ID}, req, sandbox.ExecOptions{
			Stdout: out, Started: func(wire.Started) {
				if call.Started != nil {
					call.Started()
				}
			},
		})
		if err == nil {
			return commandResult(res, req, out.text()), nil
		}
		if ctx.Err() == nil {
			return tool.Result{}, err
		}
	}
	return interrupt(ctx, call, req, out)
}

// interrupt kills a command whose turn was canceled, with everything that it started, and returns
// how the command ended. It does not start a command that never reached the box.
func interrupt(ctx context.Context, call tool.Call, req wire.ExecRequest, out *capture) (tool.Result, error) {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterCancel)
	defer cancel()
	err := call.Box.Kill(grace, wire.KillRequest{Call: call.ID, GraceMS: killGrace.Milliseconds()})
	if err == nil {
		var res wire.ExecResult
		res, err = call.Box.Exec(grace, sandbox.Call{ID: call.ID}, req, sandbox.ExecOptions{
			Stdout: out, StdoutFrom: out.seen(), AttachOnly: true,
		})
		if err == nil {
			return interrupted(res, req, out.text()), nil
		}
	}
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return canceled(neverRan), nil
	case grace.Err() != nil && errors.Is(err, grace.Err()):
		return tool.Result{}, lostTrack(err)
	}
	return tool.Result{}, err
}

// interrupted is the result of a command that was killed, or had ended just before.
func interrupted(res wire.ExecResult, req wire.ExecRequest, text string) tool.Result {
	if res.Class != holdfast.ExitCanceled && res.Class != holdfast.ExitSignal {
		return commandResult(res, req, text)
	}
	r := commandResult(res, req, text)
	r.IsError, r.Outcome = true, holdfast.ExitCanceled
	r.Content = section(text) + "[interrupted: the command was killed; it may have done part of its work]"
	return r
}

// commandResult returns the command's output and a sentence on how it ended. An exit code other
// than 0 is not an error of the tool, because the command did run.
func commandResult(res wire.ExecResult, req wire.ExecRequest, text string) tool.Result {
	r := tool.Result{Outcome: res.Class, Signal: res.Signal, DurationMS: max(res.DurationMS, 0)}
	if res.Class == holdfast.ExitOK || res.Class == holdfast.ExitExit {
		r.ExitCode = &res.Code
	} else {
		r.IsError = true
	}
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, "["+fmt.Sprintf(format, args...)+"]") }
	switch res.Class {
	case holdfast.ExitOK:
	case holdfast.ExitExit:
		note("exit code %d", res.Code)
	case holdfast.ExitSignal:
		note("ended by signal %s", res.Signal)
	case holdfast.ExitTimeout:
		note("timed out after %s: everything it started was killed; give a longer timeout or run it in the background",
			time.Duration(req.TimeoutMS)*time.Millisecond)
	case holdfast.ExitOOM:
		note("killed because the sandbox ran out of memory%s", because(res.Message))
	case holdfast.ExitPids:
		note("failed because the sandbox has no room for more processes%s", because(res.Message))
	case holdfast.ExitError:
		note("the command could not be run%s", because(res.Message))
	case holdfast.ExitCanceled:
		note("killed on request%s", because(res.Message))
	default:
		note("ended with %s%s", res.Class, because(res.Message))
	}
	if len(res.Left) > 0 {
		note("still running in the background: %s", strings.Join(res.Left, ", "))
	}
	switch {
	case len(notes) > 0:
		r.Content = section(text) + clean(strings.Join(notes, "\n"))
	case text == "":
		r.Content = "(no output)"
	default:
		r.Content = text
	}
	return r
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// section returns output with a line end, so that more text can follow on a new line.
func section(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
