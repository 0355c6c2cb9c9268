package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

const (
	// tries bounds how often a call is issued again, under its id, after the
	// connection to its box broke.
	tries = 8
	// asks bounds the questions for an outcome, askPause is the first pause between
	// two of them, doubled each time: 12.7 s in all.
	asks     = 8
	askPause = 100 * time.Millisecond
)

// carry brings a use whose intent is recorded to its outcome: finished or
// unknown. A nil box is asked for; it is how a call of an earlier life of the
// server is taken up. The call bears the same id however often it is issued. One that
// no box ever received is issued to the next one.
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
				return r.unknown(u, "the tool is not there any more")
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

// neverSent answers a call that no box received, if the next box cannot be started either.
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

// patience returns how often a call may be issued again after it was unavailable. A box
// that is alive meant it as its answer, so not often; and a cancelled turn ends soon.
func patience(ctx context.Context, alive bool) int {
	switch {
	case ctx.Err() != nil:
		return 1
	case alive:
		return 2
	}
	return tries
}

// askOutcome asks what became of a call, for a while when the answer does not come.
func (r *run) askOutcome(ctx context.Context, s holdfast.ToolStarted) (box *sandbox.Box, lost bool, err error) {
	for n := 0; n == 0 || n < asks && ctx.Err() == nil; n++ {
		if n > 0 {
			t := time.NewTimer(askPause << (n - 1))
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
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
	// The turn was cancelled, which is no reason to leave the call behind.
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterCancel)
	defer cancel()
	return r.env.Boxes.Outcome(short, s)
}

// carryHere runs a tool that acts in the server.
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

// unasked records that nobody can know what became of a call, because its box cannot be
// asked; the turn ends with that.
func (r *run) unasked(u *Use, err error) error {
	if r.noBox == nil {
		r.noBox = err
	}
	return r.unknown(u, valid("the sandbox could not be asked: "+err.Error()))
}

// unknown records that nobody can know what became of a call.
func (r *run) unknown(u *Use, reason string) error {
	e := holdfast.ToolUnknown{ToolUseID: u.ID, Call: u.Started.Call, Reason: reason}
	u.State, u.Result = Answered, UnknownResult(e)
	r.batch.add(holdfast.EventToolUnknown, e)
	return r.batch.flush()
}

// invoke runs a tool, its output shown live; a panic becomes an error.
func (r *run) invoke(ctx context.Context, t entry, u *Use, call tool.Call) (res tool.Result, err error) {
	out := output{rec: r.env.Recorder, use: u.ID}
	var first sync.Once
	call.Output = func(stream, text string) {
		first.Do(func() { r.env.At("running") })
		out.write(stream, text)
	}
	call.Started = func() { r.env.At("spawned") }
	defer func() {
		if p := recover(); p != nil {
			res, err = tool.Result{}, holdfast.Errorf(holdfast.KindInternal, u.Name, "the tool panicked: %v", p)
		}
		out.close()
	}()
	return t.Run(r.scoped(ctx, u), call)
}

// scoped holds the tool's file operations to what the policy leaves it. Without an
// answer that is nothing: a call that acted before is still answered with what it did.
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
		return sandbox.Scope{Denied: scope.Denied, Within: scope.Within, Patterns: scope.Patterns}
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

// outcome turns what a tool returned into what is recorded.
func (r *run) outcome(ctx context.Context, res tool.Result, err error, began time.Time) holdfast.ToolFinished {
	f := holdfast.ToolFinished{
		Outcome: res.Outcome, ExitCode: res.ExitCode, Signal: res.Signal,
		Content: clip(valid(res.Content)), IsError: res.IsError,
		DurationMS: res.DurationMS,
	}
	if f.DurationMS == 0 {
		f.DurationMS = milliseconds(r.Now().Sub(began))
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
		f.Outcome, f.IsError, f.Content = holdfast.ExitError, true, clip(valid(explain(err)))
	}
	return f
}

// explain is an error as the model reads it.
func explain(err error) string {
	if hint := holdfast.HintOf(err); hint != "" && !errors.Is(err, context.Canceled) {
		return fmt.Sprintf("%s (%s)", err.Error(), hint)
	}
	return err.Error()
}

// finish answers a use and puts the outcome into the batch.
func (r *run) finish(u *Use, f holdfast.ToolFinished) {
	f.ToolUseID = u.ID
	u.State, u.Result = Answered, FinishedResult(f)
	r.batch.add(holdfast.EventToolFinished, f)
}

// clip cuts a result that no model could read.
func clip(s string) string {
	if len(s) <= maxContent {
		return s
	}
	return valid(s[:maxContent]) + fmt.Sprintf("\n[cut: %d bytes more]", len(s)-maxContent)
}
