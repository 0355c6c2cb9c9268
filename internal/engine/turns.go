package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/obs"
	"github.com/holdfast-run/holdfast/internal/oldest"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// interrupted is the cancellation cause of a turn that a caller ended.
type interrupted struct{ reason string }

func (i *interrupted) Error() string { return i.reason }

// errStuck is the cancellation cause of a turn that the watchdog ended.
var errStuck = errors.New("the turn showed no progress")

// errLetGo is the error that a turn gets when the engine closes while the turn runs.
var errLetGo = errors.New("the server is closing: it stopped working on the turn, which the next start continues")

// turns runs the turns of sessions, from the start of one until the next may start. Methods that
// take a unit expect its lock to be held, unless they say otherwise.
type turns struct {
	p *parts
	// warmed lists the sessions whose agents were started ahead of their next turn.
	warmed oldest.List
	stages stages.Stages
}

// launch runs, in a goroutine, a turn that the log already shows as running.
func (t *turns) launch(u *unit, row journal.Row, next turn) {
	ctx, cancel := context.WithCancelCause(obs.WithRequestID(t.p.life.Base, next.request))
	r := &turnRun{turn: next, ctx: ctx, cancel: cancel, done: make(chan struct{}), warming: u.warming}
	t.warmed.Drop(u.id)
	r.host = newHost(t.p, u, r, row)
	u.running = r
	u.host.Store(r.host)
	t.p.units.claim(u.id)
	if !t.p.life.Turns.Run(func() {
		t.drive(u, r, row)
		cancel(nil)
		if !leftOpen(u, r) {
			t.p.units.disclaim(u)
		}
	}) {
		// The engine is closed: the server's next start finds the turn running in the log.
		r.finish()
		cancel(nil)
	}
}

// drive runs the turn's runtime until the turn has a terminal event or the server shuts down. The caller does not hold the
// unit's lock.
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
			// A parked turn at shutdown: it continues at the server's next start.
			return
		}
		more := false
		// While the store cannot be written the turn stays running, here and in the log; if that lasts
		// until shutdown, the next start continues the turn.
		done := t.p.life.Insist(u.id, "the end of a turn could not be recorded and is tried again", func() (serr error) {
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
		return runtime.Result{}, holdfast.Errorf(holdfast.KindUnavailable, "turn", "this server has no runtime %s", holdfast.Quote(row.Runtime))
	}
	work, err := t.p.brief(ctx, row)
	if err != nil {
		return runtime.Result{}, err
	}
	if !again {
		if err := t.p.cfg.Snapshots.Announce(ctx, row, r.id); err != nil {
			return runtime.Result{}, err
		}
	}
	if r.again && !r.recounted {
		if err := recount(ctx, h); err != nil {
			return runtime.Result{}, err
		}
		r.recounted = true
	}
	// The turn's earlier usage is loaded, so its box may request models now.
	h.counted.Do(func() { close(h.ready) })
	if err := h.readHooks(ctx); err != nil {
		return runtime.Result{}, err
	}
	hooks := h.hooks.Load()
	if err := hooks.Begin(ctx); err != nil {
		return runtime.Result{}, err
	}
	work.ID, work.Again, work.Meter, work.GiveBack = r.id, again, h, h.lease.GiveBack
	if hooks != nil {
		work.Hooks = hooks
	}
	return rt.Run(ctx, work, h)
}

// recount loads the usage and the newest steering message's number of a turn that continues after a crash from its log.
func recount(ctx context.Context, h *host) error {
	return h.Conversation(ctx, func(c *conversation.Conversation) error {
		if c.Turn.ID != h.r.id {
			return nil // the turn has no events yet
		}
		h.acc.Recount(&c.Turn)
		h.u.mu.Lock()
		defer h.u.mu.Unlock()
		h.r.steerSeq = max(h.r.steerSeq, c.Turn.Steered)
		return nil
	})
}

// maxBegun is how many times a turn's runtime is run again after the store refused a record.
const maxBegun = 5

// noticeStore is the code of the notice that a turn continued after the store refused a record.
const noticeStore = "store.recovered"

// settle commits the end of a turn and starts the work that follows it. It returns more true if the runtime must run again
// instead: because a steering message arrived at the end, or because the store refused a record and works again. The caller
// does not hold the unit's lock.
func (t *turns) settle(u *unit, r *turnRun, res runtime.Result, runErr error) (more bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running != r {
		return false, nil
	}
	cancelled := r.ctx.Err() != nil
	if t.p.life.Detached() {
		// Check this after r.ctx was read: a turn that was cancelled because the engine closes has not ended.
		return false, errLetGo
	}
	if runErr != nil && cancelled {
		// Whatever error the runtime returned, the cancellation is why the turn ended.
		runErr = context.Cause(r.ctx)
	}
	// The commit must not fail because the turn was cancelled.
	ctx := context.WithoutCancel(r.ctx)
	if runErr == nil && r.steerSeq > res.Seen && !cancelled {
		_, err := r.host.Keep(ctx, res.States, res.Final...)
		return err == nil, err
	}
	if runErr != nil && !cancelled && r.host.torn.Load() && r.begun < maxBegun {
		return r.recover(ctx)
	}
	to, typ, end, failed := classify(r, res, runErr)
	if r.host.denied.Load() || r.again {
		// Count the denials from the log: the turn may have begun before a restart.
		if end.Denials, err = conversation.DeniedCalls(r.host.Log(ctx, r.messageSeq), r.id); err != nil {
			t.p.cfg.Log.WarnContext(ctx, "the denied calls of a turn could not be read", "session_id", u.id, "turn_id", r.id, "error", err)
		}
	}
	withheld, err := r.withhold(ctx, runErr)
	if err != nil {
		return false, err
	}
	r.host.lease.End() // before the commit: a client that sees the turn's end may start another box at once
	carried, asked, endSeq := func(error) {}, func() {}, int64(0)
	done, err := t.p.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) (err error) {
		if runErr == nil {
			c.Events, c.States = res.Final, res.States
		}
		c.Events = append(c.Events, withheld...)
		_, carried = r.host.facts.Carry(c)
		if asked, err = r.host.asks.End(ctx, c); err != nil {
			return err
		}
		spend(r, row, res, &end, c)
		c.Events = append(c.Events, journal.Draft{Type: typ, Turn: r.id, Data: end})
		endSeq = row.LastSeq + int64(len(c.Events))
		c.Turns = []journal.TurnChange{{ID: r.id, From: holdfast.TurnRunning, To: to, EndSeq: endSeq}}
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
	t.after(u, done.Row, stages.Settled{
		Row: done.Row, Turn: r.id, Status: to, Number: r.number, Seq: endSeq,
	})
	return false, nil
}

// recover records that the turn continues after the store refused a record. It returns true if that succeeds.
func (r *turnRun) recover(ctx context.Context) (bool, error) {
	_, err := r.host.Record(ctx, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{
		Code: noticeStore, Text: "the database refused a record; the turn continues from its last recorded event",
	}})
	if err == nil {
		r.begun++
	}
	return err == nil, err
}

// withhold returns events for the end of a turn that withhold its messages on which no hook has finished. A turn that
// succeeded has none, because the hooks ran for each message before the model got it.
func (r *turnRun) withhold(ctx context.Context, runErr error) ([]journal.Draft, error) {
	if runErr == nil {
		return nil, nil
	}
	h := r.host
	return h.p.hooks.Withhold(ctx, h.row, r.id, h.hooks.Load(), h.Log(ctx, r.begins()))
}

// spend adds the turn's usage to its terminal event and to the session. It appends a usage event if the turn asked a model
// or a budget is set.
func spend(r *turnRun, row journal.Row, res runtime.Result, end *holdfast.TurnEnded, c *journal.Change) {
	spent := r.host.acc.Spent()
	if spent.Calls == 0 && spent.Usage == (holdfast.Usage{}) {
		// A runtime that does not use the meter reports its usage in the result.
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

// classify returns the terminal status and event of a turn for the error of its run. failed is set if the session moves to
// error too, because its box could not be started.
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
