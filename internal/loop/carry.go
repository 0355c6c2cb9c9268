package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

const (
	// tries is how many times a call is issued again, under the same id, after the connection to its
	// box broke.
	tries = 8
	// asks is how many times the loop asks a box for a call's result. askPause is the pause after the first
	// time; it is doubled each time, which makes 12.7 s in all.
	asks     = 8
	askPause = 100 * time.Millisecond
)

// carry carries out a use whose intent is recorded, and adds its result (finished or unknown) to the batch. If box
// is nil, the call was issued before a restart of the server, and carry first finds the box that may have received it.
// However often the call is issued, it has the same id. A call that no box received is issued to the next box.
func (r *run) carry(ctx context.Context, u *Use, box *sandbox.Box) error {
	if box == nil && u.Started.Box == "" {
		return r.unknown(u, ReasonServerEnded)
	}
	t, known := r.Tools.byName[u.Name]
	unsent := box != nil
	for n := 0; ; n++ {
		if box == nil && unsent {
			var err error
			if box, err = r.env.Boxes.Box(ctx); err != nil {
				return r.neverSent(ctx, u, err)
			}
		}
		if box == nil {
			var lost bool
			var err error
			switch box, lost, err = r.askOutcome(ctx, u.Started); {
			case lost:
				return r.unknown(u, ReasonBoxDied)
			case err != nil:
				return r.unasked(u, err)
			case !known:
				return r.unknown(u, "the tool no longer exists on this server")
			}
		}
		watched, changes := r.teller.watched(ctx, u)
		res, err := r.invoke(watched, t, u, tool.Call{ID: u.Started.Call, Input: u.runs(), Box: box})
		unsent = unsent && errors.Is(err, sandbox.ErrUnsent)
		if err != nil && holdfast.IsKind(err, holdfast.KindUnavailable) {
			_, _, alive := r.env.Boxes.Life(box)
			if n < patience(ctx, alive) {
				r.warm, box = false, nil
				continue
			}
			if unsent {
				return r.neverSent(ctx, u, err)
			}
			if !alive {
				return r.unasked(u, err)
			}
		}
		r.env.At("finished-uncommitted")
		f := r.teller.finished(ctx, u, r.outcome(ctx, res, err, u.Began), *changes)
		f.Call = u.Started.Call
		r.finish(u, f)
		r.batch.done = append(r.batch.done, release{box, f.Call})
		return nil
	}
}

// neverSent gives a use its result if no box received the call and the next box cannot be started either.
func (r *run) neverSent(ctx context.Context, u *Use, err error) error {
	f := r.outcome(ctx, tool.Result{}, err, u.Began)
	if ctx.Err() != nil {
		f.Content = textInterrupted
	} else if r.noBox == nil {
		r.noBox = err
	}
	f.Call = u.Started.Call
	r.finish(u, f)
	return nil
}

// patience returns how many times a call may be issued again after an error of kind unavailable. A box that
// is still connected gave that error as its answer, so the call is repeated only twice; after the
// cancellation of the turn only once.
func patience(ctx context.Context, alive bool) int {
	switch {
	case ctx.Err() != nil:
		return 1
	case alive:
		return 2
	}
	return tries
}

// askOutcome asks the box for the result of a call that was issued before, and asks again if that fails.
func (r *run) askOutcome(ctx context.Context, s holdfast.ToolStarted) (box *sandbox.Box, lost bool, err error) {
	for n := 0; n == 0 || n < asks && ctx.Err() == nil; n++ {
		if n > 0 {
			_ = clock.Pause(ctx, askPause<<(n-1))
		}
		if box, lost, err = r.askOnce(ctx, s); err == nil {
			return box, lost, nil
		}
	}
	return nil, false, err
}

func (r *run) askOnce(ctx context.Context, s holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	if ctx.Err() == nil {
		box, lost, err := r.env.Boxes.Outcome(ctx, s)
		if err == nil || ctx.Err() == nil {
			return box, lost, err
		}
	}
	// The turn was cancelled, but its call still needs a result: ask once more, for a limited time.
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterCancel)
	defer cancel()
	return r.env.Boxes.Outcome(short, s)
}

// carryHere runs a tool that acts in the server process, and adds its result to the batch.
func (r *run) carryHere(ctx context.Context, u *Use) error {
	res, err := r.invoke(ctx, r.Tools.byName[u.Name], u, tool.Call{ID: u.Started.Call, Input: u.runs()})
	if err != nil && ctx.Err() == nil && holdfast.IsKind(err, holdfast.KindUnavailable) {
		return r.unknown(u, valid(explain(err)))
	}
	r.env.At("finished-uncommitted")
	f := r.teller.finished(ctx, u, r.outcome(ctx, res, err, u.Began), sandbox.Changes{})
	f.Call = u.Started.Call
	r.finish(u, f)
	return nil
}

// unasked records a call's result as unknown, because its box cannot be asked for it. It also ends the turn.
func (r *run) unasked(u *Use, err error) error {
	if r.noBox == nil {
		r.noBox = err
	}
	return r.unknown(u, valid("the sandbox could not be asked for the result: "+err.Error()))
}

// unknown records a call's result as unknown.
func (r *run) unknown(u *Use, reason string) error {
	e := holdfast.ToolUnknown{ToolUseID: u.ID, Call: u.Started.Call, Reason: reason}
	u.State, u.Result = Answered, UnknownResult(e)
	r.batch.add(holdfast.EventToolUnknown, e)
	return r.batch.flush()
}

// invoke runs a tool and sends its output to live readers; a panic becomes an error.
func (r *run) invoke(ctx context.Context, t entry, u *Use, call tool.Call) (res tool.Result, err error) {
	out := output{rec: r.env.Recorder, use: u.ID}
	var first sync.Once
	call.Output = func(stream, text string) {
		first.Do(func() { r.env.At("running") })
		out.write(stream, text)
	}
	call.Unsaved = r.env.Unsaved
	call.Started = func() { r.env.At("spawned") }
	defer func() {
		if p := recover(); p != nil {
			res, err = tool.Result{}, holdfast.Errorf(holdfast.KindInternal, u.Name, "the tool panicked: %v", p)
		}
		out.close()
	}()
	return t.Run(r.scoped(ctx, u), call)
}

// scoped limits the file operations of a tool use to what the policy allows. If the policy returns an error,
// it allows no file; a call that already ran before a restart still returns its result.
func (r *run) scoped(ctx context.Context, u *Use) context.Context {
	req := policy.Request{Session: r.c.Session, Mode: r.c.Mode, Tool: u.Name, Input: u.runs(), CallID: u.ID}
	layered := sandbox.Layered(ctx, func() ([]sandbox.Layer, error) {
		scope, err := r.env.Policy.Scope(ctx, req)
		return layersOf(scope), err
	})
	return sandbox.Scoped(layered, func() sandbox.Scope {
		scope, err := r.env.Policy.Scope(ctx, req)
		if err != nil {
			return sandbox.Scope{Denied: []string{"/"}}
		}
		return sandbox.Scope{Denied: scope.Denied, Within: scope.Within, Patterns: scope.Patterns, Agents: scope.Agents}
	})
}

// layersOf converts a scope's layers to those of a box.
func layersOf(scope policy.Scope) []sandbox.Layer {
	var out []sandbox.Layer
	for _, l := range scope.Layers {
		out = append(out, sandbox.Layer(l))
	}
	return out
}

// outcome converts a tool's result to the event that records it.
func (r *run) outcome(ctx context.Context, res tool.Result, err error, began time.Time) holdfast.ToolFinished {
	f := holdfast.ToolFinished{
		Outcome: res.Outcome, ExitCode: res.ExitCode, Signal: res.Signal,
		Content: clip.Counted(res.Content, maxContent), IsError: res.IsError,
		DurationMS: res.DurationMS,
	}
	if f.DurationMS == 0 {
		f.DurationMS = clock.Milliseconds(r.Now().Sub(began))
	}
	switch {
	case err == nil:
		if f.Outcome == "" {
			f.Outcome = holdfast.ExitOK
			if f.IsError {
				f.Outcome = holdfast.ExitError
			}
		}
	case ctx.Err() != nil:
		f.Outcome, f.IsError = holdfast.ExitCanceled, true
		f.Content = "interrupted: this call was stopped; it may have done part of its work"
	default:
		f.Outcome, f.IsError, f.Content = holdfast.ExitError, true, clip.Counted(explain(err), maxContent)
	}
	return f
}

// explain returns an error, with its hint, as a text for the model.
func explain(err error) string {
	if hint := holdfast.HintOf(err); hint != "" && !errors.Is(err, context.Canceled) {
		return fmt.Sprintf("%s (%s)", err.Error(), hint)
	}
	return err.Error()
}

// finish marks a use as answered and adds its result to the batch.
func (r *run) finish(u *Use, f holdfast.ToolFinished) {
	f.ToolUseID = u.ID
	u.State, u.Result = Answered, FinishedResult(f)
	r.batch.add(holdfast.EventToolFinished, f)
}
