package claude

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// judge says what becomes of the turn after an attempt: it is over, or it goes on
// with another one.
func (x *run) judge(ctx context.Context, err error) (again bool, _ error) {
	var left *leaving
	switch {
	case errors.As(err, &left) && ctx.Err() == nil:
		return false, left.why
	case err == nil && ctx.Err() == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, x.interrupted(ctx)
	case errors.Is(err, errParked):
		return true, nil
	case !errors.Is(err, errGone):
		return false, x.failed(ctx, err)
	}
	if x.link.lost() {
		// The box may live: the next attempt finds out.
		x.lost++
		if x.lost > mostLost {
			return false, x.failed(ctx, x.link.err)
		}
		return true, nil
	}
	if k := x.link; holdfast.IsKind(k.err, holdfast.KindUnavailable) {
		// The box kept too little of what it said: nobody knows where it is.
		x.kill(ctx)
		if err := x.died(ctx, k.err.Error()); err != nil {
			return false, err
		}
		return true, nil
	} else if k.err != nil {
		return false, x.failed(ctx, k.err)
	}
	if err := x.died(ctx, x.deathOf()); err != nil {
		return false, err
	}
	return true, nil
}

// mostLost is how often in a row the pipe may break.
const mostLost = 20

// deathOf says how the process ended.
func (x *run) deathOf() string {
	k := x.link
	how := fmt.Sprintf("exit code %d", k.res.Code)
	switch {
	case k.res.Class == holdfast.ExitOOM || k.res.Class == holdfast.ExitPids:
		how = string(k.res.Class) + ": " + k.res.Message
	case k.res.Signal != "":
		how = "signal " + k.res.Signal
	}
	if s := k.errs.String(); s != "" {
		how += ": " + s
	}
	return how
}

// mostStarts is how often the CLI is started in one turn.
const mostStarts = 2

// died ends a turn whose agent is gone, unless nothing happened in it yet: then it
// begins anew, once. The agent's conversation is not lost by it.
func (x *run) died(ctx context.Context, how string) error {
	if x.plan != nil && x.plan.resume != "" && !x.mem.Shaken && x.refused == "" {
		// It did not take the transcript: the next start goes without.
		x.refused = clip(how, 300)
		x.mem.Starts--
	}
	x.asm = assembler{}
	x.answerOpen("the agent ended", true)
	if x.shown {
		x.notice("deltas.void", "the agent ended; what was shown of its answer is void")
		x.shown = false
	}
	x.state.Call, x.state.Box, x.state.Boot, x.state.Taken, x.offset = "", "", "", 0, 0
	again := !x.effects && x.mem.Starts < mostStarts
	x.mem.restarted()
	x.dirty = true
	if again {
		x.notice("agent.restarted", "the agent ended ("+how+") before it had done anything; it is started again with the same message")
		return x.flush(ctx)
	}
	x.mem.Parked = false
	if err := x.flush(ctx); err != nil {
		return err
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the agent ended in the middle of the turn (%s)", how).
		WithHint("send the message again: the conversation is kept")
}

// failed ends a turn for another reason than that its agent is gone. An agent that is
// at the turn still is ended.
func (x *run) failed(ctx context.Context, err error) error {
	if x.link == nil || !x.atWork() {
		if ferr := x.flush(ctx); ferr != nil {
			return errors.Join(err, ferr)
		}
		return err
	}
	x.answerOpen("the turn failed", true)
	x.end(ctx)
	if ferr := x.flush(ctx); ferr != nil {
		// What keeps records from being made is the better reason.
		return ferr
	}
	return err
}

// atWork reports that the CLI was told something that no result covers.
func (x *run) atWork() bool {
	return !x.mem.Shaken || slices.ContainsFunc(x.mem.Sent, func(s sent) bool { return !s.Done })
}

// interrupted ends a turn that was cancelled: what it left open is answered, and an
// agent that did not stop is ended.
func (x *run) interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	if o := x.asm.open; o != nil {
		// What it had said stays.
		x.asm.close()
		x.record(o)
	}
	x.answerOpen("interrupted", false)
	if x.link != nil && x.atWork() && x.over == nil {
		x.end(ctx)
	}
	if err := x.flush(ctx); err != nil {
		return err
	}
	return cause
}

// kill ends the process in the box. The box is nil if this attempt got none.
func (x *run) kill(ctx context.Context) error {
	if x.box == nil {
		return errGone
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), haltTime)
	defer cancel()
	return x.box.Kill(late, wire.KillRequest{Call: x.state.Call, GraceMS: 200})
}

// end ends the process.
func (x *run) end(ctx context.Context) {
	if x.kill(ctx) != nil {
		// Of a box that is gone, or that nobody is connected to, the next turn finds
		// out by itself: it is told that this agent was busy.
		x.dirty = true
		return
	}
	x.state.Call, x.state.Box, x.state.Boot, x.state.Taken, x.offset = "", "", "", 0, 0
	x.asm = assembler{}
	x.mem.restarted()
	x.dirty = true
}

// answerOpen answers the tool uses that have no outcome, as cancelled; with unknown set,
// those that were started get the outcome unknown.
func (x *run) answerOpen(why string, unknown bool) {
	for _, id := range slices.Sorted(maps.Keys(x.uses)) {
		switch u := x.uses[id]; {
		case u.state == started && unknown:
			x.add(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: u.id, Call: u.call, Reason: why})
		case u.state == started:
			x.add(holdfast.EventToolFinished, holdfast.ToolFinished{
				ToolUseID: u.id, Call: u.call, Outcome: holdfast.ExitCanceled, IsError: true,
				Content: "interrupted: it may have done a part of its work", DurationMS: milliseconds(x.r.cfg.Now().Sub(u.began)),
			})
		case u.state == requested:
			x.add(holdfast.EventToolFinished, holdfast.ToolFinished{
				ToolUseID: u.id, Outcome: holdfast.ExitCanceled, IsError: true, Content: "this call was not carried out: " + why,
			})
			u.orphan = true
		default:
			continue
		}
		x.uses[id].state = answered
	}
	x.mem.Pending = nil
}

// failureOf is a result that is none, in words that its reader can act on.
func failureOf(l *line) error {
	text := strings.TrimSpace(stringOf(l.Result))
	if text == "" {
		var list []string
		if decode(l.Errors, &list) {
			text = strings.Join(list, "; ")
		}
	}
	text = clip(text, 2<<10)
	e := &holdfast.Error{Op: "model", Kind: holdfast.KindUnavailable, Msg: text, Hint: "send the message again later"}
	switch {
	case l.Status == 401:
		e.Kind, e.Hint = holdfast.KindUnauthenticated, "check the provider's key: ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file"
	case l.Status == 403:
		e.Kind, e.Hint = holdfast.KindDenied, "check the budgets (holdfast session show), and what the provider's key may do"
	case l.Status == 429:
		e.Kind = holdfast.KindBusy
	case l.Status == 413:
		e.Kind, e.Hint = holdfast.KindTooLarge, "start another session, or send less"
	case l.Status >= 400 && l.Status < 500:
		e.Kind, e.Hint = holdfast.KindInvalid, ""
	case l.Subtype == "error_max_turns" || strings.HasPrefix(l.Subtype, "error_max_"):
		e.Kind, e.Hint = holdfast.KindBusy, "send another message to go on"
	}
	if e.Msg == "" {
		e.Msg = "the agent ended the turn: " + l.Subtype + " " + l.Reason
	}
	return e
}
