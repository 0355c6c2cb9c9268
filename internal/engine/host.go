package engine

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/account"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/hooked"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/lease"
	"github.com/holdfast-run/holdfast/internal/pending"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// host implements runtime.Host for one turn: the log, the box and the decisions that its runtime uses.
type host struct {
	p   *parts
	u   *unit
	r   *turnRun
	row journal.Row

	// lease holds the session's box for the duration of the turn.
	lease *lease.Lease
	// layers are the session's additions to the server's policy; updates are the permission changes
	// that the turn makes, with its mode; asks are the turn's questions to people.
	layers  *permit.Layers
	updates *permit.Updates
	asks    *approvals.Turn
	// facts are events and rule changes that wait to be committed with the turn's next change.
	facts pending.Facts
	// hooks are the hooks of the turn. It is nil until they are loaded, and stays nil if the session has none.
	hooks atomic.Pointer[hooked.Turn]
	// progress is the time of the turn's last activity, in Unix milliseconds.
	progress atomic.Int64
	closed   atomic.Bool
	// torn is true if the store refused a record of the current run of the runtime.
	torn atomic.Bool
	// denied is true if a tool call of this turn was denied since the server started.
	denied atomic.Bool
	// waiting is the number of questions that the turn currently waits for.
	waiting atomic.Int32

	// acc adds up the tokens, cost and time of the turn; asked is true once the turn has requested a model.
	acc   *account.Account
	asked atomic.Bool
	// ready is closed once acc includes the usage from before a restart.
	ready   chan struct{}
	counted sync.Once
	// saying tracks the position in the model's answer of the next text delta.
	saying journal.Saying
}

var (
	_ runtime.Host    = (*host)(nil)
	_ runtime.Traffic = (*host)(nil)
)

func newHost(p *parts, u *unit, r *turnRun, row journal.Row) *host {
	h := &host{p: p, u: u, r: r, row: row, ready: make(chan struct{})}
	h.updates = p.policies.Updates(row, r.id)
	deciding := func() *policy.Engine {
		if now := h.layers.Current(); now != nil {
			return now
		}
		return p.cfg.Policy
	}
	h.asks = p.questions.NewTurn(approvals.TurnConfig{
		Session: u.id, ID: r.id, After: r.begins(), Again: r.again, Log: h.Log, Commit: h.commitAt, Policy: deciding,
		Wait: h.wait, Leaving: p.life.Leaving, LetGo: errLetGo, At: h.At,
	})
	h.layers = p.policies.Layers(permit.Session{Row: row, Approver: h.asks, Updates: h.updates})
	h.lease = lease.New(lease.Config{
		Session: row.Session, InServer: row.Runtime == permit.InServer, Usable: h.usable, Rules: h.policy, Current: h.layers.Current,
		Walls: func(p *policy.Engine) sandbox.Walls { return permit.Walls(row, p) },
		Claim: func(ctx context.Context, rules func(context.Context) (*policy.Engine, error), queued func(int)) (*pool.Hold, error) {
			// An agent that is started ahead of its turn does not queue for a box.
			return p.box(ctx, u, place.Claim{Turn: r.id != "", Queued: queued}, rules)
		},
		Shared: p.boxes.Scope(u.id).Shared, Works: place.Works, Idle: place.OnlyAgents(sessions{p}, u.id),
		Stop:   func(ctx context.Context, reason string) error { return p.boxes.Stop(ctx, row, reason) },
		Notice: h.notice,
	})
	h.acc = account.New(account.Config{Session: u.id, Now: p.cfg.Clock, Began: r.startedAt, Ended: row.Spent, OfSession: row.Budget, Of: row.TurnBudget})
	h.alive()
	return h
}

func (h *host) alive() { h.progress.Store(h.p.cfg.Clock().UnixMilli()) }

// close releases the turn's box and stops recording: later records fail with errLetGo.
func (h *host) close() {
	if !h.closed.Swap(true) {
		h.lease.End()
	}
}

func (h *host) usable() error {
	if h.closed.Load() || h.p.life.Detached() {
		return errLetGo
	}
	return nil
}

// Log reads the session's events after a sequence number.
func (h *host) Log(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error] {
	return h.p.cfg.Journal.Read(ctx, h.u.id, after)
}

// Conversation calls use with the conversation that the session's log describes.
func (h *host) Conversation(ctx context.Context, use func(*conversation.Conversation) error) error {
	return h.p.conversation(ctx, h.u.id, use)
}

// AgentStates returns the session's agent states, ordered by generation.
func (h *host) AgentStates(ctx context.Context) ([]holdfast.AgentState, error) {
	return h.p.cfg.Stores.Sessions.AgentStates(ctx, h.u.id)
}

// Keep commits events of this turn together with agent states and the pending facts.
func (h *host) Keep(ctx context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	h.alive()
	for i := range drafts {
		drafts[i].Turn = h.r.id
		switch drafts[i].Type {
		case holdfast.EventModelRequest:
			h.asked.Store(true)
		case holdfast.EventToolDenied:
			h.denied.Store(true)
		}
	}
	if !onlyDecided(drafts) {
		h.layers.Recorded()
	}
	c := journal.NewChange(h.u.id)
	c.States, c.Events = states, drafts
	before, carried := h.facts.Carry(&c)
	if c.Empty() {
		carried(nil)
		return nil, nil
	}
	done, err := h.p.cfg.Journal.Commit(ctx, c)
	if err := h.committed(ctx, done, carried, err); err != nil {
		return nil, err
	}
	h.saying.Recorded(drafts)
	return done.Events[before : before+len(drafts)], nil
}

// onlyDecided reports whether drafts contain the permission for a tool call or its start, and otherwise at most the model's
// message and its tool requests. The policy need not be read again then: no call ran since it was read for the decision.
func onlyDecided(drafts []journal.Draft) bool {
	decided := false
	for _, d := range drafts {
		switch d.Type {
		case holdfast.EventToolAllowed, holdfast.EventToolStarted:
			decided = true
		case holdfast.EventMessageAssistant, holdfast.EventToolRequested:
		default:
			return false
		}
	}
	return decided
}

// commitAt commits a change that build makes from the session's row, together with the pending facts.
func (h *host) commitAt(ctx context.Context, build func(journal.Row, *journal.Change) error) error {
	carried := func(error) {}
	done, err := h.p.cfg.Journal.CommitAt(ctx, h.u.id, func(row journal.Row, c *journal.Change) error {
		if err := h.usable(); err != nil {
			return err
		}
		err := build(row, c)
		if err == nil && !c.Empty() {
			h.alive()
			_, carried = h.facts.Carry(c)
		}
		return err
	})
	return h.committed(ctx, done, carried, err)
}

// committed passes the result of a commit on to the turn's pending facts and hooks.
func (h *host) committed(ctx context.Context, done journal.Committed, carried func(error), err error) error {
	carried(err)
	if err == nil {
		h.hooks.Load().Recorded(ctx, done.Events)
	} else if holdfast.IsKind(err, holdfast.KindUnavailable) {
		h.torn.Store(true)
	}
	return err
}

// notice records an event of this turn. If that fails, it only logs the failure.
func (h *host) notice(ctx context.Context, typ holdfast.EventType, data any) {
	if _, err := h.Keep(ctx, nil, journal.Draft{Type: typ, Data: data}); err != nil {
		h.p.cfg.Log.WarnContext(ctx, "an event of the session could not be recorded", "session_id", h.u.id, "type", typ, "error", err)
	}
}

// Delta sends an unnumbered event to live readers; it is never stored.
func (h *host) Delta(typ holdfast.EventType, data any) {
	h.alive()
	if h.usable() == nil {
		h.saying.Publish(typ, data, func(data any) { h.p.cfg.Journal.Publish(h.u.id, typ, h.r.id, data) })
	}
}

// Steered returns the messages of this turn after a sequence number, as the hooks for messages change them.
func (h *host) Steered(ctx context.Context, after int64) ([]holdfast.Event, error) {
	h.u.mu.Lock()
	newest := h.r.steerSeq
	h.u.mu.Unlock()
	if newest <= after {
		return nil, nil
	}
	var out []holdfast.Event
	for ev, err := range h.Log(ctx, after) {
		if err != nil {
			return nil, err
		}
		if ev.Type == holdfast.EventMessageUser && ev.Agent == "" && ev.Turn == h.r.id {
			out = append(out, ev)
		}
	}
	return h.hooks.Load().Steered(ctx, out)
}

// Box returns the session's box, which the turn holds until it ends or the box is lost.
func (h *host) Box(ctx context.Context) (*sandbox.Box, error) {
	defer h.alive()
	return h.lease.Box(ctx)
}

// Outcome returns the box that knows the result of a started call. The bool is true if the result cannot be known any more:
// the call had no box, or the box was restarted since and did not save the result.
func (h *host) Outcome(ctx context.Context, started holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	if started.Box == "" {
		return nil, true, nil
	}
	box, err := h.Box(ctx)
	if err != nil {
		return nil, false, err
	}
	if box.Boot() == started.Boot {
		return box, false, nil
	}
	// The box was restarted since the call: it has only the results that it saved before.
	calls, err := box.Calls(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, c := range calls {
		if c.Call == started.Call {
			return box, false, nil
		}
	}
	return nil, true, nil
}

// Release lets the box forget calls whose results are recorded.
func (h *host) Release(box *sandbox.Box, calls ...holdfast.CallID) { box.Release(calls...) }

// NewCall returns a new call id.
func (h *host) NewCall() (holdfast.CallID, error) { return h.p.newCall() }

// At reports to crash tests that the turn reached a named point.
func (h *host) At(point string) { h.p.at(h.u.id, point) }

// Reserve implements model.Meter.
func (h *host) Reserve(most holdfast.Usage) (func(holdfast.Usage, bool), error) {
	return h.acc.Reserve(most)
}

// Bounded implements model.Meter.
func (h *host) Bounded() bool { return h.acc.Bounded() }

// parkLook is how often a parked turn compares the clock, so that it wakes in time even if the machine was asleep.
const parkLook = time.Minute

// Park implements model.Meter. A parked turn gives its box back and does not count as stuck. When the server shuts down,
// Park returns at once, and the next start of the server waits for the remaining time.
func (h *host) Park(ctx context.Context, until time.Time) error {
	began := h.p.cfg.Clock()
	h.acc.Park(until)
	defer func() {
		h.alive()
		h.acc.Waited(h.p.cfg.Clock().Sub(began))
		h.acc.Park(time.Time{})
	}()
	h.lease.GiveBack()
	for {
		left := until.Sub(h.p.cfg.Clock())
		if left <= 0 {
			return nil
		}
		t := time.NewTimer(min(left, parkLook, max(h.p.cfg.Turns.Silence, time.Millisecond)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-h.p.life.Leaving:
			t.Stop()
			return errLetGo
		}
	}
}

// wait marks that the turn begins to wait for a person's answer. Until goOn is called, the turn does not
// count as stuck. If the agent runs in the server, wait gives the box back; otherwise the runtime does.
func (h *host) wait() (goOn func()) {
	began := h.p.cfg.Clock()
	h.waiting.Add(1)
	if h.row.Runtime == permit.InServer {
		h.lease.GiveBack()
	}
	return func() {
		h.alive()
		h.acc.Waited(h.p.cfg.Clock().Sub(began))
		h.layers.Recorded() // read rules again: settings files may have changed during the wait
		h.waiting.Add(-1)
	}
}

// Record implements runtime.Traffic.
func (h *host) Record(ctx context.Context, drafts ...journal.Draft) ([]holdfast.Event, error) {
	return h.Keep(ctx, nil, drafts...)
}

// Session implements runtime.Traffic.
func (h *host) Session() holdfast.Session { return h.row.Session }

// Done implements runtime.Traffic.
func (h *host) Done() <-chan struct{} { return h.r.ctx.Done() }
