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
	"github.com/holdfast-run/holdfast/policy"
)

// Runner runs commands somewhere: on the host, in a box. Safe for concurrent use.
type Runner interface {
	// Run runs a shell command and returns when it ended, with all that it started
	// ended as well. What is longer than the command's timeout, or writes more than
	// MaxOutput into a stream, is killed and says so. The same non-empty Call runs
	// at most once where the place can keep that; asked again it answers with what
	// came of it. An error means that the command could not be run, or that nobody
	// knows what came of it; denied, that the place does not run it.
	Run(ctx context.Context, c Command) (Exit, error)
}

// Command is a shell command to run.
type Command struct {
	Call  holdfast.CallID
	Shell string
	// Env comes on top of the place's own environment, as NAME=value.
	Env     []string
	Stdin   []byte
	Timeout time.Duration
}

// Exit is how a command ended.
type Exit struct {
	// Code is the exit status; Signal the signal's name when one killed it.
	Code           int
	Signal         string
	Stdout, Stderr []byte
	// TimedOut and Flooded say why it was killed.
	TimedOut, Flooded bool
}

// Places is where hooks run. A missing one refuses its hooks.
type Places struct {
	Host, Box Runner
	// HTTP asks addresses; nil refuses to.
	HTTP *http.Client
	// Call names a run for good; nil names none.
	Call func(h *Hook, in Input) holdfast.CallID
	// Known is what a run came to that has been made before; nil knows none.
	Known func(call holdfast.CallID) (holdfast.HookRan, bool)
	// Now measures; nil is time.Now.
	Now func() time.Time
}

// The outcomes of a run.
const (
	OutcomeOK      = "ok"
	OutcomeBlocked = "blocked"
	OutcomeFailed  = "failed"
	OutcomeTimeout = "timeout"
	// OutcomeRefused: there was no place to run it.
	OutcomeRefused = "refused"
)

// Ran is a run and whether it was made now, or known before.
type Ran struct {
	holdfast.HookRan
	Known bool
}

// Run runs hooks in order and merges what they said. Each sees the input as those
// before it rewrote it; none can keep another one from being run. When ctx ends
// the rest is not run, and of those that fail closed each is a denial.
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

// run is one hook's run.
func (h *Hook) run(ctx context.Context, in Input, at Places, call holdfast.CallID) holdfast.HookRan {
	began := at.Now()
	ran := holdfast.HookRan{
		Event: string(in.Event), Hook: h.def.Name, Where: string(h.def.Where), ToolUseID: in.ToolUseID, Call: call, Outcome: OutcomeOK,
	}
	out := h.ask(ctx, in, at, &ran)
	ran.DurationMS = float64(at.Now().Sub(began).Microseconds()) / 1000
	ran.Message = out.Message
	if ran.Reason == "" {
		ran.Reason = out.Reason
	}
	if ran.Outcome != OutcomeOK {
		// A failed hook has no say, but that it failed closed.
		if h.def.FailClosed {
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

// tighten takes out what allows: a box is in the agent's hands, and so is what a
// hook in it says.
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

// ask runs the hook where it belongs. A failure is noted in ran.
func (h *Hook) ask(ctx context.Context, in Input, at Places, ran *holdfast.HookRan) Output {
	if ctx.Err() != nil {
		return failed(ran, OutcomeFailed, "it was not run: the turn has ended")
	}
	switch h.def.Where {
	case InProc:
		return h.call(ctx, in, ran)
	case InHTTP:
		if at.HTTP == nil {
			return failed(ran, OutcomeRefused, "addresses are not asked here")
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

// command runs a shell command and reads its answer: exit 2 blocks with stderr as
// the reason, any other exit but 0 is a failure.
func (h *Hook) command(ctx context.Context, in Input, runner Runner, ran *holdfast.HookRan) Output {
	if runner == nil {
		return failed(ran, OutcomeRefused, "nothing runs commands on the %s here", h.def.Where)
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
		return failed(ran, OutcomeTimeout, "no end within %s", h.def.Timeout)
	case exit.Flooded:
		return failed(ran, OutcomeFailed, "more than %d bytes of output", MaxOutput)
	case exit.Signal != "":
		return failed(ran, OutcomeFailed, "killed by %s", exit.Signal)
	}
	ran.ExitCode = &exit.Code
	if exit.Code != 0 && exit.Code != 2 {
		return failed(ran, OutcomeFailed, "exit status %d: %s", exit.Code, clean(strings.TrimSpace(string(exit.Stderr)), maxReason))
	}
	out := h.read(exit.Stdout, ran)
	if exit.Code == 2 {
		ran.Outcome, ran.Reason = OutcomeOK, clean(strings.TrimSpace(string(exit.Stderr)), maxReason)
		out.stricter(policy.Denied, "")
	}
	return out
}

// read reads an answer. Of a hook that fails closed one that makes no sense is a
// failure.
func (h *Hook) read(b []byte, ran *holdfast.HookRan) Output {
	out, well := ParseOutput(b)
	if !well && h.def.FailClosed {
		out.Message = clean(out.Message, maxReason)
		ran.Outcome, ran.Reason = OutcomeFailed, "its answer is not what it should be"
	}
	return out
}

// call runs a function. What it does after its time, or after a panic, has no
// effect.
func (h *Hook) call(ctx context.Context, in Input, ran *holdfast.HookRan) Output {
	limited, cancel := context.WithTimeout(ctx, h.def.Timeout)
	defer cancel()
	type answer struct {
		out *Output
		err error
	}
	got := make(chan answer, 1)
	go func() {
		a := answer{err: holdfast.Errorf(holdfast.KindInternal, op, "it ended its goroutine")}
		defer func() {
			if v := recover(); v != nil {
				a = answer{err: holdfast.Errorf(holdfast.KindInternal, op, "it panicked: %v", v)}
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
			return failed(ran, OutcomeFailed, "it was not waited for: the turn has ended")
		}
		return failed(ran, OutcomeTimeout, "no end within %s", h.def.Timeout)
	}
}

// check refuses what a function must not say.
func (o *Output) check() error {
	if in := bytes.TrimSpace(o.Input); len(in) > 0 && (in[0] != '{' || len(in) > maxInput || !json.Valid(in)) {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the rewritten input is not an object")
	}
	for _, c := range o.Rules {
		if err := policy.CheckRule(c.Rule); err != nil {
			return err
		}
		if !slices.Contains(behaviors, c.Behavior) {
			return holdfast.Errorf(holdfast.KindInvalid, op, "behavior %s is not known", holdfast.Quote(c.Behavior))
		}
	}
	return nil
}

// cleaned is what a function said, within the same bounds as what is read.
func (o *Output) cleaned() Output {
	out := *o
	out.Message, out.Reason = clean(o.Message, maxMessage), clean(o.Reason, maxReason)
	out.Context = nil
	for _, c := range o.Context {
		out.Context = append(out.Context, clean(c, maxContext))
	}
	return out
}
