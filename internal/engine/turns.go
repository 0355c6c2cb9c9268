package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// interrupted is the cause of a turn that somebody ended.
type interrupted struct{ reason string }

func (i *interrupted) Error() string { return i.reason }

// errStuck is the cause of a turn that the watchdog ended.
var errStuck = errors.New("the turn showed no progress")

// errLetGo is what a turn sees when the engine closes around it.
var errLetGo = errors.New("the server let go of the turn")

// turns runs the turns of sessions: from the start of one until the next may start. Its methods
// that take a unit are called with the unit's lock held, unless they say otherwise.
type turns struct {
	p      *parts
	warmed warmed
	stages stages.Stages
}

// launch runs a turn that the log says is running.
func (t *turns) launch(u *unit, row journal.Row, next turn) {
	ctx, cancel := context.WithCancelCause(holdfast.WithRequestID(t.p.life.Base, next.request))
	r := &turnRun{turn: next, ctx: ctx, cancel: cancel, done: make(chan struct{}), warming: u.warming}
	t.warmed.drop(u.id)
	r.host = newHost(t.p, u, r, row)
	u.running = r
	u.host.Store(r.host)
	t.p.units.claim(u.id)
	if !t.p.life.Turns.Run(func() {
		deepen(int(next.number))
		t.drive(u, r, row)
		cancel(nil)
		if !leftOpen(u, r) {
			t.p.units.disclaim(u)
		}
	}) {
		// The engine has closed: the next start finds the turn running in the log.
		r.finish()
		cancel(nil)
	}
}

// drive runs the turn's runtime until the turn has a terminal event. The caller does not hold
// the unit's lock.
func (t *turns) drive(u *unit, r *turnRun, row journal.Row) {
	defer r.finish()
	defer r.host.close()
	r.warmedUp()
	again := r.again
	for {
		r.returned.Store(false)
		res, err := t.run(r.ctx, r, row, again)
		r.returned.Store(true)
		if errors.Is(err, errLetGo) && r.ctx.Err() == nil && !r.host.closed.Load() {
			// A parked turn when the server shuts down: it goes on at the next start.
			return
		}
		more := false
		// While the store takes no writes the turn stays running, here and in the
		// log; the next start continues it if that does not change.
		done := t.p.life.Insist(u.id, "turn not settled", func() (serr error) {
			more, serr = t.settle(u, r, res, err)
			return serr
		})
		if !done || !more {
			return
		}
		again = true
	}
}

func (t *turns) run(ctx context.Context, r *turnRun, row journal.Row, again bool) (runtime.Result, error) {
	h := r.host
	h.torn.Store(false)
	h.asks.Begin()
	h.updates.Drop(&h.facts)
	rt := t.p.runtimes[row.Runtime]
	if rt == nil {
		return runtime.Result{}, holdfast.Errorf(holdfast.KindUnavailable, "turn", "runtime %s is not there", holdfast.Quote(row.Runtime))
	}
	work, err := t.p.brief(ctx, row)
	if err != nil {
		return runtime.Result{}, err
	}
	if r.again && !r.recounted {
		if err := recount(ctx, h); err != nil {
			return runtime.Result{}, err
		}
		r.recounted = true
	}
	// What the turn used up before is known: its box may ask for models now.
	h.counted.Do(func() { close(h.ready) })
	if err := h.readHooks(ctx); err != nil {
		return runtime.Result{}, err
	}
	hooks := h.hooks.Load()
	if err := hooks.Begin(ctx); err != nil {
		return runtime.Result{}, err
	}
	work.ID, work.Again, work.Meter = r.id, again, h
	if hooks != nil {
		work.Hooks = hooks
	}
	return rt.Run(ctx, work, h)
}

// recount fills the account of a turn that goes on after a crash from its log, and
// finds the newest message that joined it.
func recount(ctx context.Context, h *host) error {
	return h.Conversation(ctx, func(c *conversation.Conversation) error {
		if c.Turn.ID != h.r.id {
			return nil // it did not begin
		}
		h.acc.Recount(&c.Turn)
		h.u.mu.Lock()
		defer h.u.mu.Unlock()
		h.r.steerSeq = max(h.r.steerSeq, c.Turn.Steered)
		return nil
	})
}

// maxBegun bounds how often a turn is begun again after the store refused a record.
const maxBegun = 5

// noticeStore marks the place in a log where a turn went on after the store
// refused a record.
const noticeStore = "store.recovered"

// settle commits how a run ended, and starts what comes after the turn. more reports that the turn
// goes on: a steering message came with the end, or the store failed the run and works again. The
// caller does not hold the unit's lock.
func (t *turns) settle(u *unit, r *turnRun, res runtime.Result, runErr error) (more bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running != r {
		return false, nil
	}
	cancelled := r.ctx.Err() != nil
	if t.p.life.Detached() {
		// This is asked after the look at ctx: a turn that was cancelled because the engine let go of it
		// has not ended.
		return false, errLetGo
	}
	if runErr != nil && cancelled {
		// However the runtime put it, this is why the turn ended.
		runErr = context.Cause(r.ctx)
	}
	// The commit must not fail because the turn was cancelled.
	ctx := context.WithoutCancel(r.ctx)
	if runErr == nil && r.steerSeq > res.Seen && !cancelled {
		_, err := r.host.Keep(ctx, res.States, res.Final...)
		return err == nil, err
	}
	if runErr != nil && !cancelled && r.host.torn.Load() && r.begun < maxBegun {
		_, err := r.host.Record(ctx, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{
			Code: noticeStore, Text: "the store refused a record; the turn goes on from what is in the log",
		}})
		if err != nil {
			return false, err
		}
		r.begun++
		return true, nil
	}
	to, typ, end, failed := classify(r, res, runErr)
	if r.host.denied.Load() || r.again {
		// A turn may have begun in another life of the server, so the log has them.
		if end.Denials, err = conversation.DeniedCalls(r.host.Log(ctx, r.messageSeq), r.id); err != nil {
			t.p.cfg.Log.WarnContext(ctx, "the denied calls of a turn could not be read", "session_id", u.id, "turn_id", r.id, "error", err)
		}
	}
	carried, asked := func(error) {}, func() {}
	done, err := t.p.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) (err error) {
		if runErr == nil {
			c.Events, c.States = res.Final, res.States
		}
		_, carried = r.host.facts.Carry(c)
		if asked, err = r.host.asks.End(ctx, c); err != nil {
			return err
		}
		spend(r, row, res, &end, c)
		c.Events = append(c.Events, journal.Draft{Type: typ, Turn: r.id, Data: end})
		c.Turns = []journal.TurnChange{{ID: r.id, From: holdfast.TurnRunning, To: to, EndSeq: row.LastSeq + int64(len(c.Events))}}
		if failed != nil && row.Status == holdfast.StatusActive {
			c.Status = []holdfast.Status{holdfast.StatusError}
			c.Patch().Error = &failed.Message
			c.Events = append(c.Events, journal.Draft{Type: holdfast.EventSessionError, Data: *failed})
		}
		return nil
	})
	carried(err)
	if err != nil {
		return false, err
	}
	if to == holdfast.TurnFailed {
		t.p.cfg.Log.WarnContext(ctx, "a turn failed", "session_id", u.id, "turn_id", r.id, "kind", end.Kind, "error", end.Message)
	}
	asked()
	hooks := r.host.hooks.Load()
	hooks.Recorded(ctx, done.Events)
	r.host.close()
	u.running = nil
	u.host.Store(nil)
	r.finish()
	hooks.End(to, end)
	t.after(u, done.Row, stages.Settled{Row: done.Row, Turn: r.id, Status: to})
	return false, nil
}

// spend adds what the turn used up to its end and to the session.
func spend(r *turnRun, row journal.Row, res runtime.Result, end *holdfast.TurnEnded, c *journal.Change) {
	spent := r.host.acc.Spent()
	if spent.Calls == 0 && spent.Usage == (holdfast.Usage{}) {
		// A runtime that reserves nothing tells in the end.
		spent.Usage, spent.Calls = res.Usage.Clamp(), int64(res.Steps)
	}
	spent.Turns = 1
	end.Usage, end.Steps = spent.Usage, int(spent.Calls)
	c.Spent = spent
	asked := r.host.asked.Load() || slices.ContainsFunc(res.Final, func(d journal.Draft) bool { return d.Type == holdfast.EventModelRequest })
	if asked || row.Budget != nil || row.TurnBudget != nil {
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventUsage, Turn: r.id, Data: holdfast.UsageData{
			Turn: spent, Session: row.Spent.Add(spent), Budget: row.Budget,
		}})
	}
}

// classify returns the terminal event of a turn from how its run ended. failed is set when the
// session itself is in error: its box could not be started.
func classify(r *turnRun, res runtime.Result, err error) (to holdfast.TurnStatus, typ holdfast.EventType, end holdfast.TurnEnded, failed *holdfast.Failure) {
	end = holdfast.TurnEnded{Number: r.number, MessageSeq: r.messageSeq}
	var stop *interrupted
	switch {
	case err == nil:
		end.Result, end.StopReason = res.Text, res.StopReason
		return holdfast.TurnCompleted, holdfast.EventTurnCompleted, end, nil
	case errors.As(err, &stop):
		end.Message = stop.reason
		return holdfast.TurnInterrupted, holdfast.EventTurnInterrupted, end, nil
	case errors.Is(err, errStuck):
		end.Kind, end.Message, end.Hint = holdfast.KindUnavailable, errStuck.Error(), "send the message again, or raise turn_silence"
		return holdfast.TurnFailed, holdfast.EventTurnFailed, end, nil
	}
	end.Kind, end.Message, end.Hint = holdfast.KindOf(err), err.Error(), holdfast.HintOf(err)
	if berr := r.host.lease.Failed(); berr != nil && errors.Is(err, berr) {
		failed = &holdfast.Failure{Kind: end.Kind, Message: end.Message, Hint: end.Hint}
	}
	return holdfast.TurnFailed, holdfast.EventTurnFailed, end, failed
}

// deepen lets the calling goroutine's stack grow once, while there is next to nothing
// on it. A turn goes deep, and would otherwise copy its stack at each doubling on the
// way.
//
//go:noinline
func deepen(n int) byte {
	var room [24 << 10]byte
	room[n&0xfff] = 1
	return room[n*7&0xfff]
}
