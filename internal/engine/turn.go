package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
)

// interrupted is the cause of a turn that somebody ended.
type interrupted struct{ reason string }

func (i *interrupted) Error() string { return i.reason }

// errStuck is the cause of a turn that the watchdog ended.
var errStuck = errors.New("the turn showed no progress")

// errLetGo is what a turn sees when the engine closes around it.
var errLetGo = errors.New("the server let go of the turn")

// launch runs a turn that the log says is running. The caller holds u.mu.
func (e *Engine) launch(u *unit, row journal.Row, t turn) {
	ctx, cancel := context.WithCancelCause(holdfast.WithRequestID(e.base, t.request))
	r := &turnRun{turn: t, ctx: ctx, cancel: cancel, done: make(chan struct{}), warming: u.warming}
	e.warmed.drop(u.id)
	r.host = newHost(e, u, r, row)
	u.running = r
	u.busy.Store(true)
	u.host.Store(r.host)
	e.claim(u.id)
	if !e.crews.turns.run(func() {
		deepen(int(t.number))
		e.drive(u, r, row)
		cancel(nil)
		if !e.leftOpen(u, r) {
			e.disclaim(u)
		}
	}) {
		// The engine has closed: the next start finds the turn running in the log.
		r.finish()
		cancel(nil)
	}
}

// drive runs the turn's runtime until the turn has a terminal event.
func (e *Engine) drive(u *unit, r *turnRun, row journal.Row) {
	defer r.finish()
	defer r.host.close()
	r.warmedUp()
	again := r.again
	for {
		r.returned.Store(false)
		res, err := e.run(r.ctx, r, row, again)
		r.returned.Store(true)
		if errors.Is(err, errLetGo) && r.ctx.Err() == nil && !r.host.closed.Load() {
			// A parked turn when the server shuts down: it goes on at the next start.
			return
		}
		more := false
		// While the store takes no writes the turn stays running, here and in the
		// log; the next start continues it if that does not change.
		done := e.insist(u.id, "turn not settled", func() (serr error) {
			more, serr = e.settle(u, r, res, err)
			return serr
		})
		if !done || !more {
			return
		}
		again = true
	}
}

func (e *Engine) run(ctx context.Context, r *turnRun, row journal.Row, again bool) (runtime.Result, error) {
	r.host.torn.Store(false)
	r.host.matched.Clear()
	r.host.forget()
	rt := e.runtimes[row.Runtime]
	if rt == nil {
		return runtime.Result{}, holdfast.Errorf(holdfast.KindUnavailable, "turn", "runtime %s is not there", holdfast.Quote(row.Runtime))
	}
	t, err := e.turn(ctx, row)
	if err != nil {
		return runtime.Result{}, err
	}
	if r.again && !r.recounted {
		if err := recount(ctx, r.host); err != nil {
			return runtime.Result{}, err
		}
		r.recounted = true
	}
	r.host.counted.Do(r.host.count)
	if err := r.host.prepareHooks(ctx); err != nil {
		return runtime.Result{}, err
	}
	k := r.host.hooked()
	if err := k.begin(ctx); err != nil {
		return runtime.Result{}, err
	}
	t.ID, t.Again, t.Meter = r.id, again, r.host
	if k != nil {
		t.Hooks = k
	}
	return rt.Run(ctx, t, r.host)
}

// turn is a turn of a session with what its agent says and brings. The workspace's own
// instructions are added if the agent's owner allows it.
func (e *Engine) turn(ctx context.Context, row journal.Row) (runtime.Turn, error) {
	t := runtime.Turn{Session: row.Session}
	var err error
	if t.Instructions, err = e.cfg.Agents.Instructions(ctx, row.AgentVersion); err != nil {
		return t, err
	}
	if t.Folder, err = e.cfg.Agents.Folder(ctx, row.AgentVersion); err != nil {
		return t, err
	}
	s, err := e.cfg.Agents.Settings(ctx, row.AgentVersion)
	if err == nil && s.WorkspaceInstructions {
		at := ""
		if row.Trust == holdfast.Untrusted {
			at = policy.Cwd + "/"
		}
		t.Instructions += folder.Workspace(ctx, e.boxes.Workspace(row.ID), at, t.Folder, settings.Keys)
	}
	return t, err
}

// maxBegun bounds how often a turn is begun anew after the store refused a record.
const maxBegun = 5

// settle commits how a run ended. more says that the turn goes on: a steering
// message came with the end, or the store failed the run and works again.
func (e *Engine) settle(u *unit, r *turnRun, res runtime.Result, runErr error) (more bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running != r {
		return false, nil
	}
	cancelled := r.ctx.Err() != nil
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
	open, err := e.open(ctx, r)
	if err != nil {
		return false, err
	}
	to, typ, end, failed := classify(r, res, runErr)
	end.Denials = r.host.denials(ctx)
	k := r.host.hooked()
	owed := k.take()
	brought := r.host.verdicts.of(owed)
	done, err := e.cfg.Journal.CommitAt(ctx, u.id, func(row journal.Row, c *journal.Change) error {
		c.Events = append(c.Events, owed...)
		if runErr == nil {
			c.Events, c.States = append(c.Events, res.Final...), res.States
		}
		for _, a := range open {
			expire(c, a, "the turn ended before anybody answered")
		}
		brought.add(c, r.host)
		e.account(r, row, res, &end, c)
		c.Events = append(c.Events, journal.Draft{Type: typ, Turn: r.id, Data: end})
		c.Turns = []journal.TurnChange{{ID: r.id, From: holdfast.TurnRunning, To: to, EndSeq: row.LastSeq + int64(len(c.Events))}}
		if failed != nil && row.Status == holdfast.StatusActive {
			c.Status = []holdfast.Status{holdfast.StatusError}
			c.Set = &journal.RowPatch{Error: &failed.Message}
			c.Events = append(c.Events, journal.Draft{Type: holdfast.EventSessionError, Data: *failed})
		}
		return nil
	})
	if err != nil {
		k.owe(owed)
		return false, err
	}
	if to == holdfast.TurnFailed {
		e.cfg.Log.WarnContext(ctx, "a turn failed", "session_id", u.id, "turn_id", r.id, "kind", end.Kind, "error", end.Message)
	}
	r.host.verdicts.recorded(brought)
	k.recorded(done.Events)
	k.release()
	for _, a := range open {
		e.bells.ring(a.ID)
	}
	r.host.close()
	u.running = nil
	u.busy.Store(false)
	u.host.Store(nil)
	r.finish()
	k.stop(to, end)
	if done.Row.Status == holdfast.StatusActive {
		// What fails is tried again on its own: this turn has ended.
		_ = e.next(ctx, u)
	}
	return false, nil
}

// account adds what the turn used up to its end and to the session.
func (e *Engine) account(r *turnRun, row journal.Row, res runtime.Result, end *holdfast.TurnEnded, c *journal.Change) {
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

// noticeStore marks the place in a log where a turn went on after the store
// refused a record.
const noticeStore = "store.recovered"

// classify turns how a run ended into its terminal event. failed is set when the
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
	if berr := r.host.boxError(); berr != nil && errors.Is(err, berr) {
		failed = &holdfast.Failure{Kind: end.Kind, Message: end.Message, Hint: end.Hint}
	}
	return holdfast.TurnFailed, holdfast.EventTurnFailed, end, failed
}

// Interrupt ends the running turn and waits for its terminal event.
func (e *Engine) Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.liveRow(ctx, id)
	if err != nil {
		return holdfast.Session{}, err
	}
	r := u.running
	if r == nil {
		return row.Session, holdfast.Errorf(holdfast.KindConflict, "interrupt", "no turn of session %s is running", id).
			WithHint("holdfast session show %s", id)
	}
	if err := e.interrupt(ctx, u, r, "interrupt", "interrupted"); err != nil {
		return row.Session, err
	}
	return e.Session(ctx, id)
}

// interrupt ends a turn and waits for its end. The caller holds u.mu, which is
// released meanwhile.
func (e *Engine) interrupt(ctx context.Context, u *unit, r *turnRun, op, reason string) error {
	r.cancel(&interrupted{reason: reason})
	u.mu.Unlock()
	defer u.mu.Lock()
	select {
	case <-r.done:
		if e.leftOpen(u, r) {
			return leftToNextStart(op)
		}
		return nil
	case <-ctx.Done():
		return holdfast.Errorf(holdfast.KindUnavailable, op, "given up waiting for the end of the turn: %w", context.Cause(ctx)).
			WithHint("it will end: holdfast session events %s --follow", u.id)
	}
}

// leftOpen reports that a turn that is done has no terminal event: the server
// shut down around it. Its unit stays, so that nobody takes the session for one
// without a running turn.
func (e *Engine) leftOpen(u *unit, r *turnRun) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.running == r
}

// park keeps turns from starting until the function it returns is called, which
// then starts the next one if the session is still there for it. The caller
// holds u.mu at both ends.
func (e *Engine) park(ctx context.Context, u *unit) (done func()) {
	u.parked++
	return func() {
		u.parked--
		// What fails is tried again on its own.
		_ = e.next(ctx, u)
	}
}

// endRunning makes sure that no turn runs: without interrupt a running one is
// conflict. The caller has parked the session and holds u.mu, which is released
// while waiting.
func (e *Engine) endRunning(ctx context.Context, u *unit, op string, interrupt bool, reason string) error {
	for u.running != nil {
		r := u.running
		if !interrupt {
			return holdfast.Errorf(holdfast.KindConflict, "session."+op, "a turn of session %s is running", u.id).
				WithHint("repeat with interrupt (--interrupt, or interrupt: true), or wait for the turn")
		}
		if err := e.interrupt(ctx, u, r, "session."+op, reason); err != nil {
			return err
		}
	}
	return nil
}

// deepen lets the calling goroutine's stack grow once, while there is next to nothing
// on it. A turn goes deep, and would otherwise copy its stack at each doubling on the
// way.
//
//go:noinline
func deepen(n int) byte {
	var room [14 << 10]byte
	room[n&0xfff] = 1
	return room[n*7&0xfff]
}
