package engine

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/account"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
)

// host is the engine as the runtime of one turn sees it.
type host struct {
	e   *Engine
	u   *unit
	r   *turnRun
	row journal.Row

	// mode is the session's, which an update changes in the middle of a turn; layers
	// are what the session adds to the policy.
	mode   atomic.Pointer[holdfast.Mode]
	layers *permit.Layers
	// hooking is what the turn has to do with hooks; nil is nothing.
	hooking atomic.Pointer[hooking]

	// progress is when the turn last showed life, in Unix milliseconds.
	progress atomic.Int64
	closed   atomic.Bool
	// torn: the store refused a record of this run.
	torn atomic.Bool
	// acc is what the turn uses up; asked: a provider was asked in it.
	acc   *account.Account
	asked atomic.Bool
	// ready is closed when acc holds what the turn used up before.
	ready   chan struct{}
	counted sync.Once
	// denied: a tool call of this run was not allowed.
	denied atomic.Bool

	// questions: the turn asked a person, or found that it had; waiting counts
	// those that it waits for; matched are the answers that decided a call of this
	// run.
	questions atomic.Bool
	waiting   atomic.Int32
	matched   sync.Map
	// verdicts are what decisions bring with them, until they are recorded.
	verdicts verdicts
	// saying is where in the answer the deltas are.
	saying saying

	// asking is held by whoever gets the box; mu guards the fields and is held
	// for no longer than that takes, so that a turn can be ended at any time.
	asking sync.Mutex
	mu     sync.Mutex
	hold   *sandbox.Hold
	boxErr error
	// walling holds what the turn knows of its box's walls.
	walling walling
}

func newHost(e *Engine, u *unit, r *turnRun, row journal.Row) *host {
	h := &host{e: e, u: u, r: r, row: row, ready: make(chan struct{})}
	h.mode.Store(&row.Mode)
	h.layers = e.agents.policies.Layers(permit.Session{Row: row, Changes: u.rules.Load, Approver: h, Fresh: h.unrecorded})
	h.acc = account.New(account.Config{Session: u.id, Now: e.cfg.Clock, Began: r.startedAt, Ended: row.Spent, OfSession: row.Budget, Of: row.TurnBudget})
	h.alive()
	return h
}

func (h *host) alive() { h.progress.Store(h.e.cfg.Clock().UnixMilli()) }

// close releases the box. Nothing is recorded after it.
func (h *host) close() {
	if h.closed.Swap(true) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold != nil {
		h.hold.Release()
		h.hold = nil
	}
}

// hooked is nil in a turn without hooks.
func (h *host) hooked() *hooking { return h.hooking.Load() }

func (h *host) usable() error {
	if h.closed.Load() || h.e.detached() {
		return errLetGo
	}
	return nil
}

// Log reads the session's events after a sequence number.
func (h *host) Log(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error] {
	return h.e.cfg.Journal.Read(ctx, h.u.id, after)
}

// Conversation is the session's log as a conversation.
func (h *host) Conversation(ctx context.Context, use func(*conversation.Conversation) error) error {
	log := func(after int64) iter.Seq2[holdfast.Event, error] { return h.Log(ctx, after) }
	return h.e.conversations.Read(h.u.id, log, use)
}

// Record appends events of this turn.
func (h *host) Record(ctx context.Context, drafts ...journal.Draft) ([]holdfast.Event, error) {
	return h.Keep(ctx, nil, drafts...)
}

// AgentStates are the session's agent states by generation.
func (h *host) AgentStates(ctx context.Context) ([]holdfast.AgentState, error) {
	return h.e.cfg.Store.AgentStates(ctx, h.u.id)
}

// Keep appends events of this turn together with agent states.
func (h *host) Keep(ctx context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	k := h.hooked()
	owed := k.take()
	if len(owed)+len(drafts)+len(states) == 0 {
		return nil, nil
	}
	h.alive()
	c := journal.NewChange(h.u.id)
	c.States = states
	for i := range drafts {
		drafts[i].Turn = h.r.id
		switch drafts[i].Type {
		case holdfast.EventModelRequest:
			h.asked.Store(true)
		case holdfast.EventToolDenied:
			h.denied.Store(true)
		}
		if t := drafts[i].Type; t != holdfast.EventToolAllowed && t != holdfast.EventToolStarted {
			h.layers.Recorded() // a call that was only decided has changed no file yet
		}
	}
	c.Events = drafts
	if len(owed) > 0 {
		c.Events = append(owed[:len(owed):len(owed)], drafts...)
	}
	brought := h.verdicts.of(c.Events)
	brought.add(&c, h)
	done, err := h.e.cfg.Journal.Commit(ctx, c)
	if err != nil {
		k.owe(owed)
	} else {
		k.recorded(done.Events)
	}
	if holdfast.IsKind(err, holdfast.KindUnavailable) {
		h.torn.Store(true)
	}
	if err != nil {
		return nil, err
	}
	h.saying.recorded(drafts)
	h.verdicts.recorded(brought)
	return done.Events[len(owed) : len(owed)+len(drafts)], nil
}

// Delta shows an unnumbered event to live readers.
func (h *host) Delta(typ holdfast.EventType, data any) {
	h.alive()
	if h.usable() == nil {
		h.saying.publish(typ, data, func(data any) { h.e.cfg.Journal.Publish(h.u.id, typ, h.r.id, data) })
	}
}

// Steered returns the messages that joined this turn after a sequence number.
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
	return h.hooked().steered(ctx, out)
}

// Box is the session's box, held until the turn ends or the box is lost.
func (h *host) Box(ctx context.Context) (*sandbox.Box, error) {
	if box := h.walled(); box != nil {
		return box, nil
	}
	h.asking.Lock()
	defer h.asking.Unlock()
	if box := h.walled(); box != nil {
		return box, nil
	}
	if err := h.usable(); err != nil {
		return nil, err
	}
	// An agent that is started ahead of its turn waits in no queue.
	turn := h.r.id != ""
	claim := func() (*sandbox.Hold, error) {
		return h.e.acquire(ctx, h.u, place.Claim{Turn: turn, Queued: h.queuedAt(ctx)}, h.rules)
	}
	hold, err := claim()
	if err == nil {
		hold, err = h.restarted(ctx, hold, claim)
	}
	h.alive()
	if err == nil {
		err = intact(hold, h.u.id, true)
	}
	if err == nil && hold.Stale() {
		h.stale(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			h.boxErr = err
		}
		return nil, err
	}
	if err := h.usable(); err != nil {
		hold.Release()
		return nil, err
	}
	h.hold = hold
	return hold.Box, nil
}

// queuedAt records the turn's place in the queue for its box.
func (h *host) queuedAt(ctx context.Context) func(int) {
	return func(position int) {
		// Best effort: if it fails, only the position is not shown.
		if _, err := h.Record(ctx, journal.Draft{Type: holdfast.EventBoxQueued, Data: holdfast.BoxQueued{Position: position}}); err != nil {
			h.e.cfg.Log.WarnContext(ctx, "queue position not recorded", "session_id", h.u.id, "error", err)
		}
	}
}

// held is the box that this turn has, unless its pipe broke.
func (h *host) held() *sandbox.Box {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil || h.usable() != nil {
		return nil
	}
	select {
	case <-h.hold.Box.Done():
		h.hold.Release()
		h.hold = nil
		return nil
	default:
		return h.hold.Box
	}
}

func (h *host) boxError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boxErr
}

// Outcome finds out where a call that was meant for a box stands.
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
	// Another life of the box: only what the former one flushed is known.
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

// Release tells the box to forget calls whose outcome is recorded.
func (h *host) Release(box *sandbox.Box, calls ...holdfast.CallID) { box.Release(calls...) }

// NewCall mints a call id.
func (h *host) NewCall() (holdfast.CallID, error) {
	id, err := h.e.uuid()
	return holdfast.CallID(id), err
}

// At marks a named kill point.
func (h *host) At(point string) {
	if h.e.cfg.At != nil {
		h.e.cfg.At(h.u.id, point)
	}
}
