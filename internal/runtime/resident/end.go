package resident

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// errAgain ends an attempt after which another agent is started for the same turn.
var errAgain = errors.New("another process of the agent is started")

// killGrace is how long a process may live after SIGTERM, in milliseconds.
const killGrace = 500

// take handles a line and the lines that are queued behind it, and commits when one of them requires it.
func (r *Run) take(ctx context.Context, d Dialect, l Line) error {
	for n := 0; ; n++ {
		r.Offset = l.Next
		r.Link.Handled(l)
		due := len(r.Recorder.Due())
		heard, err := d.Hear(ctx, l)
		if err != nil {
			return err
		}
		r.heard = heard
		r.Recorder.Weigh(due, len(l.Text))
		if r.Uses.Inputs() > mostInputs {
			return holdfast.Errorf(holdfast.KindTooLarge, r.cfg.Op, "the inputs of the agent's tool uses are over %d bytes in one turn", mostInputs)
		}
		if n == batch || heard == Over || r.Recorder.Full() {
			break
		}
		select {
		case next, ok := <-r.Link.Lines():
			if ok {
				l = next
				continue
			}
		default:
		}
		break
	}
	if r.heard == Over || r.heard != Commit && !r.Outbox.Queued() && !r.Recorder.Full() {
		return nil
	}
	return r.Flush(ctx, d)
}

// tick fetches messages that joined the turn, and commits events that have waited long enough.
func (r *Run) tick(ctx context.Context, d Dialect) error {
	if err := r.Steer(ctx); err != nil {
		return err
	}
	if r.heard == Hold || r.heard == Over {
		return nil
	}
	return r.Flush(ctx, d)
}

// Steer fetches messages that joined the turn and adds them to the Account.
func (r *Run) Steer(ctx context.Context) error {
	events, err := r.host.Steered(ctx, r.Account.Last())
	if err != nil {
		return err
	}
	for _, ev := range events {
		r.Recorder.Seq = max(r.Recorder.Seq, ev.Seq)
	}
	return r.Account.Join(events)
}

// commit records what is due together with the agent's state. Then the box may forget the
// recorded output and the calls of processes that have ended.
func (r *Run) commit(ctx context.Context, d Dialect) error {
	s := d.Snapshot()
	if err := r.Recorder.Commit(ctx, s); err != nil {
		return err
	}
	if r.Link != nil {
		r.Link.Recorded(s.Taken)
	}
	if r.Box != nil && len(r.release) > 0 {
		r.host.Release(r.Box, r.release...)
		r.release = nil
	}
	return nil
}

// Flush commits what is due, and then sends the queued lines, which had to wait for the commit.
func (r *Run) Flush(ctx context.Context, d Dialect) error {
	if r.Recorder.Pending() {
		if err := r.commit(ctx, d); err != nil {
			return err
		}
	}
	if r.Link == nil || !r.Outbox.Queued() {
		return nil
	}
	return r.Link.In.Add(r.Outbox.Take()...)
}

// judge handles the end of an attempt: it ends the turn, or returns true if another attempt has to continue
// the turn. lost counts how often the connection to the box broke.
func (r *Run) judge(ctx context.Context, d Dialect, err error, lost *int) (again bool, _ error) {
	var left *leaving
	switch {
	case errors.As(err, &left) && ctx.Err() == nil:
		return false, left.why
	case err == nil && ctx.Err() == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, r.interrupted(ctx, d)
	case errors.Is(err, errAgain), errors.Is(err, errWaits):
		return true, nil
	case !errors.Is(err, errGone):
		return false, r.failed(ctx, d, err)
	}
	k := r.Link
	if k.Lost() {
		// The box may be alive: the next attempt finds out.
		if *lost++; *lost > mostLost {
			return false, r.failed(ctx, d, k.Err())
		}
		return true, nil
	}
	if holdfast.IsKind(k.Err(), holdfast.KindUnavailable) {
		// The box dropped output before it was read: the agent's progress is unknown.
		if err := r.kill(ctx); err != nil {
			return false, r.failed(ctx, d, err)
		}
		return true, r.died(ctx, d, k.How(), false)
	} else if err := k.Err(); err != nil {
		if r.cfg.Unreadable != nil {
			err = r.cfg.Unreadable(err)
		}
		return false, r.failed(ctx, d, err)
	}
	return true, r.died(ctx, d, k.How(), true)
}

// Decided handles the decision d on a tool use, or the error err of making it. It records the
// decision, unless the use runs already. ok is false if the decision has no effect, because the
// use or the turn is over. If err is a policy.Undecided, or is not a *holdfast.Error, nothing was
// decided, and Decided returns a Leave error; any other err denies the use.
func (r *Run) Decided(ctx context.Context, u *Use, d policy.Decision, err error) (allowed, ok bool, _ error) {
	u.Late(d, err)
	if u.Over() || r.Halted || err != nil && ctx.Err() != nil {
		return false, false, nil
	}
	var open *policy.Undecided
	var known *holdfast.Error
	switch {
	case errors.As(err, &open), err != nil && !errors.As(err, &known):
		return false, false, Leave(err)
	case err != nil:
		d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "no decision: " + err.Error()}
	}
	allowed = d.Verdict == policy.Allowed
	switch {
	case u.State == Started:
	case !allowed:
		r.Uses.Deny(u, d)
	default:
		call, err := r.host.NewCall()
		if err != nil {
			return false, false, err
		}
		r.Uses.Allow(u, d, call, r.Recorder.State.Box, r.Recorder.State.Boot)
	}
	return allowed, true, nil
}

// working reports whether the process still answers a message, or has not finished its start. Both have to
// end before the turn ends.
func (r *Run) working(d Dialect) bool { return d.Work() != Idle || r.Link != nil && !r.Ready }

// died handles the end of the process during a turn. If a new process would repeat nothing that had an
// effect, it continues the turn with one; otherwise the turn fails. The agent's conversation is not lost.
func (r *Run) died(ctx context.Context, d Dialect, how string, byItself bool) error {
	work, ready := d.Work(), r.Ready || !byItself
	if work != Idle {
		d.Cut(Lost)
	}
	r.Uses.End("the agent ended", false)
	again := d.Gone(how, work, byItself) || work == Idle && ready
	r.forget()
	switch {
	case again && work == Waiting:
		r.Recorder.Notice(noticeRestarted, "the agent ended ("+clip.Counted(how, mostHow)+") while a tool call waited for permission; it is started again to repeat that call")
	case again && work == Answering:
		r.Recorder.Notice(noticeRestarted, "the agent ended ("+clip.Counted(how, mostHow)+") before it had done anything; it is started again with the same message")
	}
	switch err := r.Flush(ctx, d); {
	case again || err != nil:
		return err
	case !ready:
		return r.startError("did not start", clip.Counted(how, mostHow))
	}
	return holdfast.Errorf(holdfast.KindUnavailable, r.cfg.Op, "the process of %s ended in the middle of the turn (%s)", r.cfg.Agent, clip.Counted(how, mostHow)).
		WithHint("send the message again: the conversation is kept")
}

// noticeRestarted is the code of the notice that another process of the agent continues the turn.
const noticeRestarted = "agent.restarted"

// mostHow is the most bytes of the text on how a process ended.
const mostHow = 3 << 10

// missing continues the turn if the process that the state names does not run any more.
func (r *Run) missing(ctx context.Context, d Dialect, how string) error {
	if d.Work() != Idle {
		return r.died(ctx, d, how, false)
	}
	d.Gone(how, Idle, false)
	r.forget()
	return nil
}

// unready ends a process that did not become ready in time. Another process may continue the turn, otherwise
// the turn fails.
func (r *Run) unready(ctx context.Context, d Dialect) error {
	how := fmt.Sprintf("it did not answer within %s", r.cfg.Handshake)
	if said := r.Link.Stderr(); said != "" {
		how += ": " + said
	}
	if err := r.kill(ctx); err != nil {
		return err
	}
	if err := r.died(ctx, d, how, true); err != nil {
		return err
	}
	return errAgain
}

// failed ends a turn that failed while its agent runs. It records outcomes for open tool uses,
// and ends an agent that is still busy with the turn.
func (r *Run) failed(ctx context.Context, d Dialect, err error) error {
	if working := r.working(d); working || r.Uses.Open() {
		d.Cut(Failed)
		r.Uses.End("the turn failed", false)
		if working {
			r.end(ctx, d)
		}
	}
	if ferr := r.Flush(ctx, d); ferr != nil {
		// The log cannot be written: return that error, because it is the cause.
		return ferr
	}
	return err
}

// interrupted ends a turn that was cancelled. It records outcomes for open tool uses, and ends a process that
// did not stop by itself.
func (r *Run) interrupted(ctx context.Context, d Dialect) error {
	working := !r.over && r.working(d)
	d.Cut(Interrupted)
	r.Uses.End("interrupted", true)
	if working {
		if r.Box == nil && r.Recorder.State.Call != "" {
			// This run never attached, but an earlier server left the agent busy.
			late, cancel := late(ctx)
			defer cancel()
			r.Box, _ = r.host.Box(late)
		}
		r.end(ctx, d)
	}
	if err := r.Flush(ctx, d); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// end ends the process that the state names. If its box is gone or cannot be reached, the process is left to
// the next turn, which sees in the state that the process was busy.
func (r *Run) end(ctx context.Context, d Dialect) {
	r.Recorder.Touch()
	if r.Recorder.State.Call == "" || r.kill(ctx) == nil {
		d.Gone("it was ended", Idle, false)
		r.forget()
	}
}

// kill kills the process that the state names, in its box.
func (r *Run) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
	defer cancel()
	if r.Box == nil {
		return errGone // the box does not run, or was not reached
	}
	if r.Box.Boot() != r.Recorder.State.Boot {
		return nil
	}
	err := r.Box.Kill(ctx, wire.KillRequest{Call: r.Recorder.State.Call, GraceMS: killGrace})
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return nil
	}
	return err
}

// forget removes the process from the state: the agent does not run.
func (r *Run) forget() {
	s := &r.Recorder.State
	if s.Call != "" {
		r.release = append(r.release, s.Call)
	}
	s.Call, s.Box, s.Boot, s.Taken = "", "", "", 0
	r.Offset, r.Ready, r.heard = 0, false, Commit
	r.Outbox.Clear()
	r.Recorder.Touch()
}
