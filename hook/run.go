package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/policy"
)

// Runner runs commands somewhere: on the host, in a box. Safe for concurrent use.
type Runner interface {
	// Run runs a shell command and returns when the command and everything that it started have
	// ended. A command that takes longer than its timeout, or writes more than MaxOutput bytes to
	// stdout or stderr, is killed, and Exit says so. If the place can remember calls, a command
	// with the same non-empty Call runs at most once: a repetition returns the first result. An
	// error means that the command could not be run or its result is not known; an error of kind
	// denied, that this place does not run the command.
	Run(ctx context.Context, c Command) (Exit, error)
}

// Command is a shell command to run.
type Command struct {
	Call  holdfast.CallID
	Shell string
	// Env are variables, as NAME=value, in addition to the place's own environment.
	Env     []string
	Stdin   []byte
	Timeout time.Duration
}

// Exit says how a hook's command ended.
type Exit struct {
	// Code is the exit status. Signal is the name of the signal that killed the command, if any.
	Code           int
	Signal         string
	Stdout, Stderr []byte
	// TimedOut and Flooded are true if the command was killed because it took too long, or wrote
	// too much output.
	TimedOut, Flooded bool
}

// Places are the places where hooks run. If one is nil, its hooks are not run and have the
// outcome refused.
type Places struct {
	Host, Box Runner
	// HTTP makes the requests of hooks with a URL.
	HTTP *http.Client
	// Call returns the permanent id of a hook's run; nil gives runs no ids.
	Call func(h *Hook, in Input) holdfast.CallID
	// Known returns the recorded result of a run that was made before; nil knows none.
	Known func(call holdfast.CallID) (holdfast.HookRan, bool)
	// Now returns the time for measuring durations; nil means time.Now.
	Now func() time.Time
}

// The outcomes of a hook's run.
const (
	OutcomeOK      = "ok"
	OutcomeBlocked = "blocked"
	OutcomeFailed  = "failed"
	OutcomeTimeout = "timeout"
	// OutcomeRefused means that the hook was not run, because no place for it is configured or
	// the place refused it.
	OutcomeRefused = "refused"
)

// Ran is the result of a hook's run. Known is true if the run was made and recorded before.
type Ran struct {
	holdfast.HookRan
	Known bool
}

// Run runs hooks in order and merges their results. Each hook gets the input as the hooks before
// it rewrote it; no hook prevents others from running. When ctx ends the remaining hooks are not
// run and count as failed, which is a denial for those with FailClosed and for userPromptSubmit.
func Run(ctx context.Context, hooks []*Hook, in Input, at Places) Result {
	var res Result
	if at.Now == nil {
		at.Now = time.Now
	}
	for _, h := range hooks {
		var r Ran
		if at.Call != nil {
			r.Call = at.Call(h, in)
		}
		if at.Known != nil && r.Call != "" {
			if known, ok := at.Known(r.Call); ok {
				r = Ran{known, true}
			}
		}
		if !r.Known {
			r.HookRan = h.run(ctx, in, at, r.Call)
		}
		res.add(r)
		if len(r.Input) > 0 {
			in.ToolInput = r.Input
		}
	}
	return res
}

// run runs one hook and returns the record of the run.
func (h *Hook) run(ctx context.Context, in Input, at Places, call holdfast.CallID) holdfast.HookRan {
	began := at.Now()
	ran := holdfast.HookRan{
		Event: string(in.Event), Hook: h.def.Name, Where: string(h.def.Where), ToolUseID: in.ToolUseID, Call: call, Outcome: OutcomeOK,
	}
	out := h.ask(ctx, in, at, &ran)
	ran.DurationMS = clock.Milliseconds(at.Now().Sub(began))
	ran.Message = out.Message
	if ran.Reason == "" {
		ran.Reason = out.Reason
	}
	if ran.Outcome != OutcomeOK {
		// The answer of a failed hook is ignored. The failure is a denial if the hook has FailClosed, and if the end of
		// ctx cut off a hook about a message of the user: no model may get a message that no hook has seen.
		if h.def.FailClosed || in.Event == UserPromptSubmit && ctx.Err() != nil {
			ran.Decision = decisionName(policy.Denied)
		}
		return ran
	}
	if h.def.Where == InBox {
		out.tighten()
	}
	ran.Decision = decisionName(out.Verdict)
	if out.Verdict == policy.Denied {
		ran.Outcome = OutcomeBlocked
		if ran.Reason == "" {
			ran.Reason = out.Message
		}
	}
	ran.Input, ran.Context, ran.Output = out.Input, out.Context, out.ToolOutput
	ran.Rules, ran.Notification = out.Rules, out.Notification
	return ran
}

// tighten removes verdicts and rules that allow. It is for hooks in a box, because the agent
// controls the box and so can fake their answers.
func (o *Output) tighten() {
	if o.Verdict == policy.Allowed {
		o.Verdict = policy.NoOpinion
	}
	rules := o.Rules
	o.Rules = nil
	for _, r := range rules {
		if r.Behavior != "allow" {
			o.Rules = append(o.Rules, r)
		}
	}
}

// ask runs the hook in its place and returns its answer. It records a failure in ran.
func (h *Hook) ask(ctx context.Context, in Input, at Places, ran *holdfast.HookRan) Output {
	if ctx.Err() != nil {
		return failed(ran, OutcomeFailed, "the hook was not run, because the turn has ended")
	}
	switch h.def.Where {
	case InProc:
		return h.call(ctx, in, ran)
	case InHTTP:
		if at.HTTP == nil {
			return failed(ran, OutcomeRefused, "hooks with a URL cannot run here")
		}
		return h.post(ctx, in, at.HTTP, ran)
	case OnHost:
		return h.command(ctx, in, at.Host, ran)
	default:
		return h.command(ctx, in, at.Box, ran)
	}
}

func failed(ran *holdfast.HookRan, outcome, format string, args ...any) Output {
	ran.Outcome, ran.Reason = outcome, clean(fmt.Sprintf(format, args...), maxReason)
	return Output{}
}

// command runs the hook's shell command and parses its answer. Exit status 2 blocks the event with
// stderr as the reason; any other status except 0 is a failure of the hook.
func (h *Hook) command(ctx context.Context, in Input, runner Runner, ran *holdfast.HookRan) Output {
	if runner == nil {
		return failed(ran, OutcomeRefused, "hooks with place %s cannot run here", h.def.Where)
	}
	exit, err := runner.Run(ctx, Command{
		Call: ran.Call, Shell: h.def.Command, Env: in.environ(), Stdin: in.json(), Timeout: h.def.Timeout,
	})
	switch {
	case holdfast.IsKind(err, holdfast.KindDenied):
		return failed(ran, OutcomeRefused, "%s", err)
	case err != nil:
		return failed(ran, OutcomeFailed, "%s", err)
	case exit.TimedOut:
		return failed(ran, OutcomeTimeout, "the hook's command did not end within %s", h.def.Timeout)
	case exit.Flooded:
		return failed(ran, OutcomeFailed, "the hook's command wrote more than %d bytes of output", MaxOutput)
	case exit.Signal != "":
		return failed(ran, OutcomeFailed, "the hook's command was killed by signal %s", exit.Signal)
	}
	ran.ExitCode = &exit.Code
	if exit.Code != 0 && exit.Code != 2 {
		return failed(ran, OutcomeFailed, "the hook's command ended with exit status %d: %s", exit.Code, clean(strings.TrimSpace(string(exit.Stderr)), maxReason))
	}
	out := h.read(exit.Stdout, ran)
	if exit.Code == 2 {
		ran.Outcome, ran.Reason = OutcomeOK, clean(strings.TrimSpace(string(exit.Stderr)), maxReason)
		out.stricter(policy.Denied, "")
	}
	return out
}

// read parses an answer. An answer that begins with "{" and is not a JSON object with valid fields is a failure if the
// hook has FailClosed; else it is a message.
func (h *Hook) read(b []byte, ran *holdfast.HookRan) Output {
	out, well := ParseOutput(b)
	if !well && h.def.FailClosed {
		out.Message = clean(out.Message, maxReason)
		ran.Outcome, ran.Reason = OutcomeFailed, `the hook's answer begins with "{" but is not a JSON object with valid fields`
	}
	return out
}

// call runs the hook's function. An answer after the timeout is ignored; a panic is a failure.
func (h *Hook) call(ctx context.Context, in Input, ran *holdfast.HookRan) Output {
	limited, cancel := context.WithTimeout(ctx, h.def.Timeout)
	defer cancel()
	type answer struct {
		out *Output
		err error
	}
	got := make(chan answer, 1)
	go func() {
		a := answer{err: holdfast.Errorf(holdfast.KindInternal, op, "the hook's function ended its goroutine without returning an answer")}
		defer func() {
			if v := recover(); v != nil {
				a = answer{err: holdfast.Errorf(holdfast.KindInternal, op, "the hook's function panicked: %v", v)}
			}
			got <- a
		}()
		a.out, a.err = h.def.Func(limited, in)
	}()
	select {
	case a := <-got:
		if a.err != nil {
			return failed(ran, OutcomeFailed, "%s", a.err)
		}
		if a.out == nil {
			return Output{}
		}
		if err := a.out.check(); err != nil {
			return failed(ran, OutcomeFailed, "%s", err)
		}
		return a.out.cleaned()
	case <-limited.Done():
		if ctx.Err() != nil {
			return failed(ran, OutcomeFailed, "the turn ended while the hook's function was running")
		}
		return failed(ran, OutcomeTimeout, "the hook's function did not end within %s", h.def.Timeout)
	}
}

// check returns an error if the answer of a function is not valid.
func (o *Output) check() error {
	if in := bytes.TrimSpace(o.Input); len(in) > 0 && (in[0] != '{' || len(in) > maxInput || !json.Valid(in)) {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the tool input that the hook's function returned is not a JSON object of at most %d bytes", maxInput)
	}
	for _, c := range o.Rules {
		if err := policy.CheckRule(c.Rule); err != nil {
			return err
		}
		if !slices.Contains(behaviors, c.Behavior) {
			return holdfast.Errorf(holdfast.KindInvalid, op, "a rule that the hook's function returned has the unknown behavior %s", holdfast.Quote(c.Behavior))
		}
	}
	return nil
}

// cleaned returns the answer of a function with its texts cleaned and cut to the same limits as in
// answers that are parsed.
func (o *Output) cleaned() Output {
	out := *o
	out.Message, out.Reason = clean(o.Message, maxMessage), clean(o.Reason, maxReason)
	out.Context = nil
	for _, c := range o.Context {
		out.Context = append(out.Context, clean(c, maxContext))
	}
	return out
}
