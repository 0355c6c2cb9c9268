package claude

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// handshakeTime is how long the CLI may take until it answers its first request.
	handshakeTime = 60 * time.Second
	// haltTime is how long it may take to stop when it is told to.
	haltTime = 5 * time.Second
	// tailTime is how long the end of a turn waits for the transcript to hold it.
	tailTime = 500 * time.Millisecond
	// steerEvery is how often messages that join the turn are looked for.
	steerEvery = 100 * time.Millisecond
	// wholeTime is how long the blocks of an answer that came without a stream may be
	// apart.
	wholeTime = 200 * time.Millisecond
	// batch is how many lines share a commit, mostDue how many events wait for the end
	// of an answer, mostWeight how large the lines may be that said them.
	batch, mostDue, mostWeight = 256, 256, 4 << 20
)

// errGone says that the attachment ended and nobody asked it to.
var errGone = errors.New("the agent is gone")

// attempt goes on with the turn on the CLI that runs, or on one that it starts, until
// the turn's end or the attachment's.
func (x *run) attempt(ctx, outer context.Context) error {
	if err := x.parkedStill(ctx); err != nil {
		return err
	}
	var err error
	if x.box, err = x.host.Box(ctx); err != nil {
		return err
	}
	live, err := x.connect(ctx)
	if err != nil {
		return err
	}
	if !live {
		if err := x.start(ctx); err != nil {
			return err
		}
	}
	return x.converse(ctx, outer)
}

// connect attaches to the process that the state names, if it is there.
func (x *run) connect(ctx context.Context) (bool, error) {
	s := &x.state
	if s.Call == "" {
		return false, nil
	}
	why := x.stale
	if x.others > 0 {
		why = "another runtime had turns since"
	}
	if s.Boot == x.box.Boot() {
		if why != "" || x.mem.Prefaced && !x.begunAny() {
			if err := x.box.Kill(ctx, wire.KillRequest{Call: s.Call}); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
				return false, err
			}
			x.mem.restarted()
			x.stale = ""
			return false, nil
		}
		k := attach(ctx, x.box, s.Call, wire.ExecRequest{}, s.Taken)
		x.link, x.offset, x.asm = k, s.Taken, assembler{}
		before := x.mem
		ahead, err := x.tellAhead()
		if err != nil {
			return false, err
		}
		select {
		case st := <-k.started:
			k.out.Begin(st.StdinTaken)
			if !ahead {
				return true, x.resume(ctx, st.StdinTaken)
			}
			for i := range x.mem.Sent {
				x.mem.Sent[i].At += st.StdinTaken
			}
			x.pursueAll(ctx)
			x.receipt(holdfast.TierLive)
			return true, x.flush(ctx)
		case <-k.done:
			// Nobody took what was sent ahead, or nobody is left who did.
			x.mem = before
			if k.lost() {
				return false, errGone
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		k.detach()
		x.link = nil
	}
	if x.mem.Parked || len(x.mem.Sent) == 0 {
		return false, nil
	}
	return false, x.died(ctx, "the sandbox ended with it")
}

// begunAny reports that the CLI began with a message of the turn.
func (x *run) begunAny() bool {
	return slices.ContainsFunc(x.mem.Sent, func(s sent) bool { return s.Begun || s.Done })
}

// resume takes up what a former attachment left: what the CLI did not take is sent
// again, what it asked is answered.
func (x *run) resume(ctx context.Context, taken int64) error {
	if !x.mem.Shaken && taken == 0 {
		x.out = append(x.out, x.handshake())
	}
	for i := range x.mem.Sent {
		s := &x.mem.Sent[i]
		if s.Done || s.Begun || taken > s.At {
			continue
		}
		text, ok := x.textOf(s.Seq)
		if !ok {
			continue
		}
		s.At = x.link.out.Next() + size(x.out)
		x.out = append(x.out, prompt(s.UUID, text))
		x.dirty = true
	}
	x.pursueAll(ctx)
	if x.mem.Shaken && len(x.mem.Sent) == 0 {
		x.receipt(holdfast.TierLive)
		if len(x.out) == 0 {
			return nil // It is recorded with the prompt, which comes next.
		}
	}
	if len(x.mem.Sent) > 0 || len(x.out) > 0 {
		return x.flush(ctx)
	}
	return nil
}

// pursueAll answers what the CLI asked a former attachment: those answers may be lost.
func (x *run) pursueAll(ctx context.Context) {
	for _, p := range slices.Clone(x.mem.Pending) {
		x.pursue(ctx, p)
	}
}

func size(lines [][]byte) (n int64) {
	for _, l := range lines {
		n += int64(len(l))
	}
	return n
}

// textOf is what a message that was sent says.
func (x *run) textOf(seq int64) (string, bool) {
	if seq == 0 {
		return goOn, true
	}
	for _, m := range x.messages {
		if m.seq == seq {
			return x.t.Folder.Qualify(m.text), true
		}
	}
	return "", false
}

// start starts a CLI by the best tier there is.
func (x *run) start(ctx context.Context) error {
	r := x.r
	x.began = r.cfg.Now()
	prog, err := r.cfg.Program()
	if err != nil {
		return err
	}
	model, err := modelOf(x.t.Session.Model)
	if err != nil {
		return err
	}
	states, err := x.host.AgentStates(ctx)
	if err != nil {
		return err
	}
	x.facts = facts{session: x.t.Session, turn: x.t.ID, box: x.box, states: states, refused: x.refused}
	if x.facts, err = r.gather(ctx, x.host, x.facts); err != nil {
		return err
	}
	id, err := r.uuid()
	if err != nil {
		return err
	}
	p := planStart(x.facts, id)
	for _, w := range x.warnings {
		p.preface += "<system-reminder>" + w + "</system-reminder>\n\n"
	}
	if x.warming && p.preface != "" {
		// The history goes with a prompt, and is in memory only.
		return errNoWarm
	}
	call, err := x.host.NewCall()
	if err != nil {
		return err
	}
	old, given := x.state.Call, x.mem.Sent
	x.mem.restarted()
	if x.mem.Parked = x.mem.Parked && p.resume != ""; x.mem.Parked {
		// Its transcript holds what it was told before it was parked.
		x.mem.Sent = given
	}
	x.mem.Starts++
	x.mem.Model, x.mem.Prefaced = model, p.preface != ""
	x.mem.Known = p.turns
	x.state, x.plan, x.offset, x.asm, x.others, x.stale = p.state, &p, 0, assembler{}, 0, ""
	x.state.Call, x.state.Box, x.state.Boot, x.state.Taken = call, x.box.ID(), x.box.Boot(), 0
	x.state.Version, x.state.Turns = prog.Version, p.turns
	// Its call is in the state before it runs (HZ-12): whoever comes next finds it. What
	// is put aside is in the log before it moves.
	if _, err := x.host.Keep(ctx, append(p.changed, x.snapshot()), p.drafts...); err != nil {
		return err
	}
	if err := r.execute(ctx, x.host, x.facts, &p); err != nil {
		return err
	}
	if old != "" {
		x.host.Release(x.box, old)
	}
	x.host.At("agent-spawn")
	shown, err := x.brought(ctx)
	if err != nil {
		return err
	}
	k := attach(ctx, x.box, call, r.command(&p, prog, model, shown), 0)
	x.link = k
	select {
	case <-k.started:
	case <-k.done:
		return x.notStarted()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return k.out.Add(x.handshake())
}

// notStarted says why there is no process.
func (x *run) notStarted() error {
	k := x.link
	if k.lost() {
		return errGone
	}
	why := k.res.Message
	if k.err != nil {
		why = k.err.Error()
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the Claude Code CLI cannot be started: %s", why).
		WithHint("holdfast runtime install claude")
}

// receipt records how the agent of this turn was come by.
func (x *run) receipt(tier holdfast.Tier) {
	if x.plan != nil && tier != holdfast.TierLive {
		ev := x.plan.receipt(x.facts, x.state.Version)
		ev.Call, ev.Box = x.state.Call, x.state.Box
		ev.DurationMS = milliseconds(x.r.cfg.Now().Sub(x.began))
		x.add(holdfast.EventAgentStarted, ev)
		return
	}
	x.add(holdfast.EventAgentStarted, holdfast.AgentStarted{
		Generation: x.state.Generation, Runtime: Name, AgentID: x.state.AgentID, Version: x.state.Version, Tier: tier,
		Turns: x.mem.Known, Of: x.mem.Known, Call: x.state.Call, Box: x.state.Box,
	})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// converse reads what the CLI says until the turn's end.
func (x *run) converse(ctx, outer context.Context) error {
	steers := time.NewTicker(steerEvery)
	defer steers.Stop()
	shake := time.NewTimer(handshakeTime)
	defer shake.Stop()
	halt := outer.Done()
	var kill <-chan time.Time
	for {
		if over, err := x.advance(ctx); over || err != nil {
			return err
		}
		select {
		case l, ok := <-x.link.lines:
			if !ok {
				return errors.Join(errGone, x.flush(ctx))
			}
			if err := x.take(ctx, l); err != nil {
				return err
			}
		case v := <-x.decided:
			if err := x.settle(ctx, v); err != nil {
				return err
			}
		case done := <-x.flushes:
			done <- x.flush(ctx)
		case <-steers.C:
			if err := x.steer(ctx); err != nil {
				return err
			}
			if x.over == nil && x.asm.open == nil {
				if err := x.flush(ctx); err != nil {
					return err
				}
			}
		case <-x.deferred:
			x.deferred = nil
			if err := x.closeAnswer(ctx); err != nil {
				return err
			}
		case <-x.tail:
			x.mirrored = x.mem.Leaf
		case <-shake.C:
			if !x.mem.Shaken {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "the Claude Code CLI did not answer within %s: %s", handshakeTime, &x.link.errs).
					WithHint("holdfast doctor")
			}
		case <-halt:
			halt = nil
			if !x.halt() {
				return context.Cause(outer)
			}
			t := time.NewTimer(haltTime)
			defer t.Stop()
			kill = t.C
		case <-kill:
			return context.Cause(outer)
		}
	}
}

// take deals with a line, and with those that wait behind it.
func (x *run) take(ctx context.Context, l raw) error {
	for n := 0; ; n++ {
		if err := x.handle(ctx, l); err != nil {
			return err
		}
		if x.inputs > mostInputs {
			return holdfast.Errorf(holdfast.KindTooLarge, op, "the inputs of the agent's tool uses are over %d bytes in one turn", mostInputs)
		}
		if n == batch || x.over != nil || x.weight > mostWeight {
			break
		}
		select {
		case next, ok := <-x.link.lines:
			if ok {
				l = next
				continue
			}
		default:
		}
		break
	}
	if x.over != nil || len(x.out) == 0 && x.waits() {
		return nil
	}
	return x.flush(ctx)
}

// waits reports that what is due may wait for company: the lines that said it are read
// again after a crash. The end goes along with turn.completed; an answer that is not
// complete is recorded as a whole; what stands in the transcript, and what no event
// tells of, goes along with the next event, or when messages are looked for.
func (x *run) waits() bool {
	if len(x.due) >= mostDue || x.weight > mostWeight {
		return false
	}
	return x.asm.open != nil || !slices.ContainsFunc(x.due, func(d journal.Draft) bool { return d.Type != holdfast.EventAgentMirrored })
}

// advance says what is to be said now; that does not wait for the answer to the
// handshake, which the CLI reads before any prompt and without which the run ends. It
// reports that the turn is over.
func (x *run) advance(ctx context.Context) (bool, error) {
	if x.warming {
		return x.mem.Shaken, nil
	}
	if x.halted && x.over == nil {
		return false, nil
	}
	if x.over != nil {
		if x.halted {
			return true, nil
		}
		if x.mem.Leaf != "" && x.mirrored != x.mem.Leaf {
			if x.tail == nil {
				t := time.NewTimer(tailTime)
				x.tail = t.C
			}
			return false, nil
		}
		if x.fail != nil {
			return true, x.fail
		}
		if err := x.steer(ctx); err != nil {
			return false, err
		}
		if len(x.unsent()) == 0 {
			return true, nil
		}
		x.over, x.tail = nil, nil
	}
	if len(x.unsent()) == 0 && !x.mem.Parked {
		return false, nil
	}
	return false, x.tell(ctx)
}

// halt tells the CLI to stop. It reports false where there is nothing to stop.
func (x *run) halt() bool {
	if x.over != nil || !slices.ContainsFunc(x.mem.Sent, func(s sent) bool { return !s.Done }) {
		return false
	}
	x.halted = true
	return x.link.out.Add(control("hf-interrupt", object{"subtype": "interrupt", "cancel_queued": true})) == nil
}
