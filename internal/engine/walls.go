package engine

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// nativeRuntime is the runtime whose agents run in the server. Every other runtime has
// a program in the box, which keeps its state in the home directory.
const nativeRuntime = "native"

// wallsOf returns the path rules of a policy that the session's box enforces. A trusted
// session has no box: only the text of its calls is checked.
func wallsOf(row journal.Row, p *policy.Engine) sandbox.Walls {
	if row.Trust != holdfast.Untrusted {
		return sandbox.Walls{}
	}
	w := p.Walls(policy.Home, policy.Cwd)
	return sandbox.Walls{
		Masked: w.Masked, ReadOnly: w.ReadOnly, Readable: w.Readable, Writable: w.Writable,
		Patterns: w.Patterns, WritePatterns: w.WritePatterns, KeepHome: row.Runtime != nativeRuntime,
	}
}

// rulesOf gives the policy that a session's walls are made from.
type rulesOf func(context.Context) (*policy.Engine, error)

// rulesNow reads the policy of a session outside of a turn.
func (e *Engine) rulesNow(u *unit, row journal.Row) rulesOf {
	return func(ctx context.Context) (*policy.Engine, error) {
		// The next turn reports settings that cannot be read; until then nothing is allowed.
		p, _, err := e.agents.policies.Layers(permit.Session{Row: row, Changes: u.rules.Load}).Policy(ctx)
		return p, err
	}
}

// walling holds what a turn knows of its box's walls. It is guarded by host.mu.
type walling struct {
	// by is the policy that the walls are made from, hash their hash.
	by   *policy.Engine
	hash string
	told bool
	// claimed: the turn has claimed the box before, so that an agent may be working in it.
	claimed bool
}

// rules returns the turn's policy and remembers that the box's walls are made from it.
func (h *host) rules(ctx context.Context) (*policy.Engine, error) {
	var err error
	// The last decision has read the rules just now.
	p := h.layers.Current()
	if p == nil {
		p, err = h.policy(ctx)
	}
	if err == nil {
		hash := wallsOf(h.row, p).Hash()
		h.mu.Lock()
		h.walling.by, h.walling.hash = p, hash
		h.mu.Unlock()
	}
	return p, err
}

// walled returns the box of this turn if its walls are in force and are those that the
// session's rules ask for now. Else the turn lets go of the box: the next claim starts
// it again, unless something runs in it.
func (h *host) walled() *sandbox.Box {
	box := h.held()
	if box == nil || h.row.Trust != holdfast.Untrusted {
		return box
	}
	now := h.layers.Current()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		return nil
	}
	if now != nil && now != h.walling.by {
		if wallsOf(h.row, now).Hash() == h.walling.hash {
			h.walling.by = now
		}
	}
	if (now == nil || now == h.walling.by) && !h.hold.Stale() && h.hold.WallsHold() {
		return box
	}
	h.hold.Release()
	h.hold = nil
	return nil
}

// restarted stops the box of a stale claim if only idle agents run in it, and claims it
// again, with the present walls. Only the first claim of a turn does this, because the
// agent works after it. Any other claim is returned unchanged.
func (h *host) restarted(ctx context.Context, hold *pool.Hold, claim func() (*pool.Hold, error)) (*pool.Hold, error) {
	h.mu.Lock()
	first := !h.walling.claimed
	h.walling.claimed = true
	h.mu.Unlock()
	if !first || !hold.Stale() || !h.e.onlyAgents(ctx, h.u.id, hold.Box) {
		return hold, nil
	}
	hold.Release()
	if err := h.e.boxes.Stop(ctx, h.row, pool.WallsChanged); err != nil {
		return nil, err
	}
	return claim()
}

// onlyAgents reports whether every call that runs in a box, whosever it is, is an agent of
// the session.
func (e *Engine) onlyAgents(ctx context.Context, id holdfast.SessionID, box *sandbox.Box) bool {
	calls, err := box.Of("").Calls(ctx)
	if err != nil {
		return false
	}
	states, err := e.cfg.Store.AgentStates(ctx, id)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(calls, func(c wire.CallState) bool {
		return c.Status == wire.CallRunning && !slices.ContainsFunc(states, func(s holdfast.AgentState) bool { return s.Call == c.Call })
	})
}

// Notices about walls.
const (
	noticeWalls   = "walls.pending"
	noticeNoWalls = "walls.none"
	wallsLater    = "the path rules changed while something runs in the box: the text of calls and the file tools are held to them at once, its processes from its next start, when the turn has ended or nothing runs"
	noWalls       = "the session is trusted: its path rules are judged by the text of each call, and no box enforces them"
)

// stale records, once a turn, a notice that the box has older walls than the rules
// ask for.
func (h *host) stale(ctx context.Context) {
	h.mu.Lock()
	told := h.walling.told
	h.walling.told = true
	h.mu.Unlock()
	if told {
		return
	}
	if _, err := h.Record(ctx, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: noticeWalls, Text: wallsLater}}); err != nil {
		h.e.cfg.Log.WarnContext(ctx, "older walls not recorded", "session_id", h.u.id, "error", err)
	}
}

// wallGone denies a call while a wall of the box is missing and something runs in it.
// Once nothing runs, the next call starts the box again with all walls.
func (h *host) wallGone() (policy.Decision, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// An agent that runs in the server claims its box again before each call.
	if h.hold == nil || h.row.Runtime == nativeRuntime || h.hold.WallsHold() {
		return policy.Decision{}, false
	}
	return policy.Decision{Verdict: policy.Denied, By: "walls", Reason: errWallGone(h.u.id).Error()}, true
}

func errWallGone(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "box", "a file or directory was renamed on the host, and a path rule's wall in the box of session %s went with it", id).
		WithHint("let the turn end, or: holdfast session interrupt %s; the box starts again with all walls", id)
}

// intact refuses a claim whose box lacks a wall. Outside of a turn it also refuses one
// whose walls are older than the rules. It releases a claim that it refuses.
func intact(hold *pool.Hold, id holdfast.SessionID, turn bool) error {
	var err error
	switch {
	case !hold.WallsHold():
		err = errWallGone(id)
	case hold.Stale() && !turn:
		err = holdfast.Errorf(holdfast.KindBusy, "box", "the path rules of session %s changed, and its box still runs with the older ones", id).
			WithHint("let the turn end, or: holdfast session interrupt %s", id)
	default:
		return nil
	}
	hold.Release()
	return err
}

// unwalled adds a notice to the events of a new trusted session that has path rules:
// it runs without a box, so nothing enforces them.
func (e *Engine) unwalled(ctx context.Context, row journal.Row, events []journal.Draft) ([]journal.Draft, error) {
	if row.Trust != holdfast.Trusted {
		return events, nil
	}
	v, err := e.agents.policies.Version(ctx, row.AgentVersion)
	if err != nil || v.Walls(policy.Home, policy.Cwd).Empty() {
		return events, err
	}
	return append(events, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: noticeNoWalls, Text: noWalls}}), nil
}
