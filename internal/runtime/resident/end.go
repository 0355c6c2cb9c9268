package resident

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// errAgain says that another agent is started.
var errAgain = errors.New("the agent is started again")

// killGrace is how long a process may take after SIGTERM, in milliseconds.
const killGrace = 500

// take handles a line, and those that wait behind it.
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

// tick looks for messages that joined the turn, and commits what has waited long enough.
func (r *Run) tick(ctx context.Context, d Dialect) error {
	if err := r.Steer(ctx); err != nil {
		return err
	}
	if r.heard == Hold || r.heard == Over {
		return nil
	}
	return r.Flush(ctx, d)
}

// Steer looks for messages that joined the turn.
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

// commit records what is due with the agent's state. Then the box may forget the output
// that is recorded, and the calls of processes that are gone.
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

// Flush commits what is due, and then sends the lines that waited for that.
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

// judge says what becomes of the turn after an attempt: it is over, or another attempt
// goes on with it.
func (r *Run) judge(ctx context.Context, d Dialect, err error) (again bool, _ error) {
	var left *leaving
	switch {
	case errors.As(err, &left) && ctx.Err() == nil:
		return false, left.why
	case err == nil && ctx.Err() == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, r.interrupted(ctx, d)
	case errors.Is(err, errAgain):
		return true, nil
	case !errors.Is(err, errGone):
		return false, r.failed(ctx, d, err)
	}
	k := r.Link
	if k.Lost() {
		// The box may live: the next attempt finds out.
		if r.lost++; r.lost > mostLost {
			return false, r.failed(ctx, d, k.Err())
		}
		return true, nil
	}
	if holdfast.IsKind(k.Err(), holdfast.KindUnavailable) {
		// The box kept too little of the output: nobody knows what the agent is at.
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

// Decided takes in what was decided about a tool use; err says that nobody decided. It
// records the decision unless the use runs already. ok is false if nothing follows from it:
// the use or the turn is over. If the server is leaving, the run is left as it stands.
func (r *Run) Decided(ctx context.Context, u *Use, d policy.Decision, err error) (allowed, ok bool, _ error) {
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

// working reports that a process is at something that has to end before its turn does.
func (r *Run) working(d Dialect) bool { return d.AtWork() || r.Link != nil && !r.Ready }

// died goes on after the end of the process: with another one where that repeats
// nothing, else the turn fails. The conversation of the agent is not lost by it.
func (r *Run) died(ctx context.Context, d Dialect, how string, byItself bool) error {
	work, ready := d.AtWork(), r.Ready || !byItself
	if work {
		d.Cut(Lost)
	}
	r.Uses.End("the agent ended", false)
	again := d.Gone(how, byItself) || !work && ready
	r.forget()
	if again && work {
		r.Recorder.Notice("agent.restarted", "the agent ended ("+Clip(how, mostHow)+") before it had done anything; it is started again with the same message")
	}
	switch err := r.Flush(ctx, d); {
	case again || err != nil:
		return err
	case !ready:
		return r.startError("did not start", Clip(how, mostHow))
	}
	return holdfast.Errorf(holdfast.KindUnavailable, r.cfg.Op, "%s ended in the middle of the turn (%s)", r.cfg.Agent, Clip(how, mostHow)).
		WithHint("send the message again: the conversation is kept")
}

// mostHow bounds the text about the end of a process, in bytes.
const mostHow = 3 << 10

// missing goes on after a process that the state names and that is not there.
func (r *Run) missing(ctx context.Context, d Dialect, how string) error {
	if d.AtWork() {
		return r.died(ctx, d, how, false)
	}
	d.Gone(how, false)
	r.forget()
	return nil
}

// unready ends a process that does not get ready.
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

// failed ends a turn for another reason than that its agent is gone. Open tool uses are
// answered, and an agent that is still at the turn is ended.
func (r *Run) failed(ctx context.Context, d Dialect, err error) error {
	if working := r.working(d); working || r.Uses.Open() {
		d.Cut(Failed)
		r.Uses.End("the turn failed", false)
		if working {
			r.end(ctx, d)
		}
	}
	if ferr := r.Flush(ctx, d); ferr != nil {
		// The log refuses records: that is the better reason.
		return ferr
	}
	return err
}

// interrupted ends a turn that was cancelled: what it left open is answered, and an
// agent that did not stop is ended.
func (r *Run) interrupted(ctx context.Context, d Dialect) error {
	working := !r.over && r.working(d)
	d.Cut(Interrupted)
	r.Uses.End("interrupted", true)
	if working {
		if r.Box == nil && r.Recorder.State.Call != "" {
			// Nobody attached: a former server left the agent at work.
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

// end ends the process of the state. One in a box that is gone, or that nobody can
// connect to, is left to the next turn: the state says that it was busy.
func (r *Run) end(ctx context.Context, d Dialect) {
	r.Recorder.Touch()
	if r.Recorder.State.Call == "" || r.kill(ctx) == nil {
		d.Gone("it was ended", false)
		r.forget()
	}
}

// kill ends the process of the state in its box.
func (r *Run) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
	defer cancel()
	if r.Box == nil {
		return errGone // there is no box, or it did not come back
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

// forget makes the state one of an agent that does not run.
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
