package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// answer carries out the tool uses of one answer: it brings each to state Answered, records the results, and
// adds them to the conversation in the model's order. Adjacent uses that only read run concurrently; a use
// that may change something runs alone, after the uses before it.
func (r *run) answer(ctx context.Context, uses []Use) error {
	if r.env.Hooks != nil {
		// The id of a hook run derives from the number of the answer's event, which must be in the log first.
		if err := r.batch.flush(); err != nil {
			return err
		}
	}
	for i := range uses {
		if ctx.Err() != nil {
			break
		}
		if uses[i].State == Requested {
			if err := r.decide(ctx, &uses[i]); err != nil {
				return err
			}
		}
	}
	for i := 0; i < len(uses) && ctx.Err() == nil && r.noBox == nil; {
		u := &uses[i]
		if u.State == Answered {
			i++
			continue
		}
		t, known := r.Tools.byName[u.Name]
		if !known && u.State != Started {
			r.finish(u, holdfast.ToolFinished{
				Outcome: holdfast.ExitError, Content: "the tool " + holdfast.Quote(u.Name) + " no longer exists", IsError: true,
			})
			i++
			continue
		}
		if u.State == Started || t.effect == tool.Mutate {
			if err := r.mutate(ctx, u); err != nil {
				return err
			}
			i++
			continue
		}
		n := i + 1
		for n < len(uses) && (uses[n].State == Answered || r.reads(&uses[n])) {
			n++
		}
		if err := r.read(ctx, uses[i:n]); err != nil {
			return err
		}
		i = n
	}
	if ctx.Err() != nil || r.noBox != nil {
		return r.settle(ctx, uses)
	}
	r.teller.answered(ctx, uses)
	if err := r.batch.flush(); err != nil {
		return err
	}
	r.hear(uses)
	return nil
}

// hear adds the results of the last answer's tool uses to the conversation, followed by the texts of hooks
// about these results.
func (r *run) hear(uses []Use) {
	results := make([]model.Block, len(uses))
	for i := range uses {
		results[i] = uses[i].Result
	}
	pending := r.c.Hooked
	r.c.Hooked = nil
	r.c.Messages = AppendUser(r.c.Messages, append(results, r.teller.said(pending)...)...)
}

// reads reports whether a use that has not started calls a tool that changes nothing.
func (r *run) reads(u *Use) bool {
	t, known := r.Tools.byName[u.Name]
	return known && t.effect != tool.Mutate && u.State != Started
}

// settle gives every tool use without a result one, after ctx ended or no box could be started. It starts no
// new call, and kills a call that may be running in the box.
func (r *run) settle(ctx context.Context, uses []Use) error {
	for i := range uses {
		u := &uses[i]
		switch {
		case u.State == Answered:
		case u.State == Started && u.Started.Box != "" && ctx.Err() == nil:
			if err := r.unasked(u, r.noBox); err != nil {
				return err
			}
		case u.State == Started:
			// Run the tool with a context that has ended: that kills the call that runs under this id, and
			// starts nothing.
			if err := r.carry(ctx, u, nil); err != nil {
				return err
			}
		default:
			r.finish(u, holdfast.ToolFinished{Outcome: holdfast.ExitCanceled, Content: textInterrupted, IsError: true})
		}
	}
	if err := r.batch.flush(); err != nil {
		return err
	}
	r.hear(uses)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.noBox
}

// decide allows a tool use, or answers it with a denial. It returns an error, which ends the run, if no
// decision was made because the decider is gone (policy.Undecided).
func (r *run) decide(ctx context.Context, u *Use) error {
	var v policy.Decision
	t, known := r.Tools.byName[u.Name]
	switch _, bad := objectOf(u.Input); {
	case !known:
		v = policy.Decision{By: "unknown tool", Reason: "there is no tool " + holdfast.Quote(u.Name)}
	case u.Result.Text != "":
		v = policy.Decision{By: "input", Reason: u.Result.Text}
	case bad != "":
		v = policy.Decision{By: "input", Reason: bad}
	default:
		var err error
		v, err = r.env.Policy.Decide(ctx, policy.Request{
			Session: r.c.Session, Mode: r.c.Mode, Tool: u.Name, ReadOnly: t.effect != tool.Mutate, Input: u.Input, CallID: u.ID,
			Ready: r.batch.flush,
		})
		if err != nil && ctx.Err() != nil {
			return nil
		}
		var open *policy.Undecided
		if errors.As(err, &open) {
			return err
		}
		if err != nil {
			v = policy.Decision{By: v.By, Reason: "the call could not be decided: " + err.Error()}
		}
	}
	if v.Input != nil && v.Verdict == policy.Allowed {
		if _, bad := objectOf(v.Input); bad != "" {
			v = policy.Decision{By: v.By, Reason: "the input that the decision put in place of the model's is invalid: " + bad}
		}
	}
	d := holdfast.ToolDecision{ToolUseID: u.ID, Tool: u.Name, InputHash: policy.InputHash(u.Input), By: v.By, Rule: v.Rule}
	if v.Verdict == policy.Allowed {
		u.State, u.Rewritten, d.Input = Allowed, v.Input, v.Input
		r.batch.add(holdfast.EventToolAllowed, d)
		return nil
	}
	if v.By == "unknown tool" || v.By == "input" {
		r.teller.refused(ctx, u, v.Reason)
	}
	d.Reason = valid(v.Reason)
	if d.By == "" {
		d.By = "policy"
	}
	u.State, u.Result = Answered, DeniedResult(d)
	r.batch.add(holdfast.EventToolDenied, d)
	return nil
}

// read runs the unanswered uses of a group of read-only calls concurrently, and adds their results
// to the batch.
func (r *run) read(ctx context.Context, group []Use) error {
	if err := r.batch.flush(); err != nil {
		return err
	}
	limit := r.Parallel
	if limit <= 0 {
		limit = DefaultParallel
	}
	outcomes := make([]readOutcome, len(group))
	open := 0
	for i := range group {
		if group[i].State != Answered {
			open++
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range group {
		if group[i].State == Answered {
			continue
		}
		if open == 1 {
			outcomes[i] = r.readOne(ctx, &group[i])
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = r.readOne(ctx, &group[i])
		})
	}
	wg.Wait()
	for i := range group {
		if group[i].State != Answered {
			r.finish(&group[i], r.teller.finished(ctx, &group[i], outcomes[i].ToolFinished, sandbox.Changes{}))
			if r.noBox == nil {
				r.noBox = outcomes[i].noBox
			}
		}
	}
	return nil
}

// readOutcome is the result of a read-only call. noBox is the error if its box could not be
// started.
type readOutcome struct {
	holdfast.ToolFinished
	noBox error
}

// readOne runs a read-only tool. If the connection to its box is lost, it runs the tool once more.
func (r *run) readOne(ctx context.Context, u *Use) readOutcome {
	t := r.Tools.byName[u.Name]
	began := r.Now()
	for again := false; ; again = true {
		call := tool.Call{Input: u.runs()}
		if ctx.Err() != nil {
			return readOutcome{ToolFinished: r.outcome(ctx, tool.Result{}, ctx.Err(), began)}
		}
		if t.where == tool.InBox {
			var err error
			if call.Box, err = r.env.Boxes.Box(ctx); err != nil {
				out := readOutcome{ToolFinished: r.outcome(ctx, tool.Result{}, err, began)}
				if ctx.Err() == nil {
					out.noBox = err
				}
				return out
			}
		}
		res, err := r.invoke(ctx, t, u, call)
		if err != nil && !again && call.Box != nil && holdfast.IsKind(err, holdfast.KindUnavailable) && ctx.Err() == nil {
			continue
		}
		return readOutcome{ToolFinished: r.outcome(ctx, res, err, began)}
	}
}

// mutate records the intent of a use, carries the call out, and adds the result to the batch. The batch, and
// with it the result, is recorded with the next intent, before the next reads, or after the last call of the answer.
func (r *run) mutate(ctx context.Context, u *Use) error {
	if u.State == Started {
		return r.carry(ctx, u, nil)
	}
	if r.Tools.byName[u.Name].where == tool.InServer {
		if begun, err := r.intend(ctx, u, nil); err != nil || !begun {
			return err
		}
		return r.carryHere(ctx, u)
	}
	box, err := r.acquire(ctx)
	if err != nil {
		if _, broken := err.(recordError); broken {
			return err
		}
		if ctx.Err() == nil {
			r.finish(u, r.outcome(ctx, tool.Result{}, err, r.Now()))
			r.noBox = err
		}
		return nil
	}
	if begun, err := r.intend(ctx, u, box); err != nil || !begun {
		return err
	}
	return r.carry(ctx, u, box)
}

// intend records that a use is about to act, in a box or, if box is nil, in the server. It returns
// begun false, and records nothing, if the turn is cancelled.
func (r *run) intend(ctx context.Context, u *Use, box *sandbox.Box) (begun bool, err error) {
	call, err := r.env.NewCall()
	if err != nil || ctx.Err() != nil {
		return false, err
	}
	u.Started = holdfast.ToolStarted{ToolUseID: u.ID, Call: call}
	if box != nil {
		u.Started.Box, u.Started.Boot, _ = r.env.Boxes.Life(box)
	}
	u.State, u.Began = Started, r.Now()
	r.batch.add(holdfast.EventToolStarted, u.Started)
	if err := r.batch.flush(); err != nil {
		return false, err
	}
	r.env.At("intent")
	return true, nil
}

// recordError wraps an error of Recorder.Record, so that it is not mistaken for an error of the box.
type recordError struct{ error }

func (e recordError) Unwrap() error { return e.error }

// acquire returns the box for a call. If that takes longer than boxPatience, it records the batch while it
// waits. Otherwise it leaves the batch to be recorded together with the intent of the call.
func (r *run) acquire(ctx context.Context) (*sandbox.Box, error) {
	if r.warm || len(r.batch.entries) == 0 {
		return r.env.Boxes.Box(ctx)
	}
	type got struct {
		box *sandbox.Box
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan got, 1)
	go func() {
		box, err := r.env.Boxes.Box(ctx)
		ch <- got{box, err}
	}()
	t := time.NewTimer(boxPatience)
	defer t.Stop()
	select {
	case g := <-ch:
		r.warm = g.err == nil
		return g.box, g.err
	case <-t.C:
	}
	if err := r.batch.flush(); err != nil {
		cancel()
		<-ch
		return nil, recordError{err}
	}
	g := <-ch
	r.warm = g.err == nil
	return g.box, g.err
}
