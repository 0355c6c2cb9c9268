package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Boxes are the boxes of the server's sessions.
func (e *Engine) Boxes() *place.Boxes { return e.boxes }

// acquire claims a session's box. rules gives the policy that its walls are made from; nil
// reads it. The caller has claimed u.
func (e *Engine) acquire(ctx context.Context, u *unit, c place.Claim, rules rulesOf) (*pool.Hold, error) {
	c.Session = u.id
	c.Walls = func(ctx context.Context, row journal.Row) (wire.Walls, error) {
		now := rules
		if now == nil {
			now = e.rulesNow(u, row)
		}
		p, err := now(ctx)
		if err != nil {
			return wire.Walls{}, err
		}
		return wallsOf(row, p), nil
	}
	return e.boxes.Acquire(ctx, c)
}

// sessions is what place is told of sessions.
type sessions struct{ e *Engine }

var _ place.Sessions = sessions{}

// Row implements place.Sessions.
func (s sessions) Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	return s.e.cfg.Store.Row(ctx, id)
}

// Live implements place.Sessions.
func (s sessions) Live(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	return s.e.liveRow(ctx, id)
}

// Seeded implements place.Sessions.
func (s sessions) Seeded(ctx context.Context, id holdfast.SessionID, set journal.RowPatch) error {
	c := journal.NewChange(id)
	c.Set = &set
	_, err := s.e.cfg.Journal.Commit(ctx, c)
	return err
}

// Files implements place.Sessions.
func (s sessions) Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error) {
	return s.e.cfg.Agents.Files(ctx, version)
}

// Plugin implements place.Sessions. The native runtime reads what a version brings in the
// server, and a trusted agent where it lies.
func (s sessions) Plugin(ctx context.Context, row journal.Row) (string, error) {
	if row.Trust != holdfast.Untrusted || row.Runtime == nativeRuntime {
		return "", nil
	}
	return s.e.cfg.Agents.Plugin(ctx, row.AgentVersion)
}

// Prepare implements place.Sessions.
func (s sessions) Prepare(row journal.Row) (func(context.Context, *sandbox.Box) error, error) {
	env, err := s.e.openEnv(row)
	return func(ctx context.Context, box *sandbox.Box) error { return s.e.connect(ctx, row, box, env) }, err
}

// Idle implements place.Sessions.
func (s sessions) Idle(ctx context.Context, id holdfast.SessionID, box holdfast.BoxID) []holdfast.CallID {
	open, err := s.e.cfg.Store.OpenTurns(ctx, id)
	if err != nil || len(open) > 0 {
		return nil
	}
	states, err := s.e.cfg.Store.AgentStates(ctx, id)
	if err != nil {
		return nil
	}
	var calls []holdfast.CallID
	for _, st := range states {
		if st.Call != "" && st.Box == box {
			calls = append(calls, st.Call)
		}
	}
	return calls
}

// Settled implements place.Sessions: all finished calls but those whose intent has no outcome.
func (s sessions) Settled(ctx context.Context, id holdfast.SessionID, held []wire.CallState) ([]holdfast.CallID, error) {
	turn := s.e.turnOf(id)
	open, ran := map[holdfast.CallID]bool{}, map[holdfast.CallID]bool{}
	for ev, err := range s.e.cfg.Journal.Read(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		switch ev.Type {
		case holdfast.EventToolStarted:
			var d holdfast.ToolStarted
			if err := ev.Decode(&d); err != nil {
				return nil, err
			}
			open[d.Call] = true
		case holdfast.EventToolFinished, holdfast.EventToolUnknown:
			var d holdfast.ToolFinished
			if err := ev.Decode(&d); err != nil {
				return nil, err
			}
			delete(open, d.Call)
		case holdfast.EventHookRan:
			var d holdfast.HookRan
			if err := ev.Decode(&d); err != nil {
				return nil, err
			}
			ran[d.Call] = true
		}
	}
	states, err := s.e.cfg.Store.AgentStates(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		// What an agent said to its end is not all accounted for.
		open[st.Call] = open[st.Call] || st.Health == holdfast.HealthCurrent
	}
	var done []holdfast.CallID
	for _, c := range held {
		// A hook's run of the running turn is held until it is recorded.
		if _, mine := hookOf(c.Call, turn); mine && !ran[c.Call] {
			continue
		}
		if !open[c.Call] {
			done = append(done, c.Call)
		}
	}
	return done, nil
}

// turnOf is the turn of a session that runs now; empty for none.
func (e *Engine) turnOf(id holdfast.SessionID) holdfast.TurnID {
	e.mu.Lock()
	u := e.units[id]
	e.mu.Unlock()
	if u != nil {
		if h := u.host.Load(); h != nil && !h.closed.Load() {
			return h.r.id
		}
	}
	return ""
}

// BoxEvent writes what happened to a box into the log of each session that may use it, or
// that was the last to; it is the pools' OnEvent.
func (e *Engine) BoxEvent(ev pool.Event) {
	ctx := context.WithoutCancel(e.base)
	ids, err := e.boxes.Hear(ctx, ev.Box)
	if err != nil {
		e.cfg.Log.Warn("box event not recorded", "box_id", ev.Box, "type", ev.Type, "error", err)
	}
	for _, id := range ids {
		e.boxEvent(ctx, id, ev)
	}
}

func (e *Engine) boxEvent(ctx context.Context, id holdfast.SessionID, ev pool.Event) {
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: ev.Type, Data: ev.Data()}}
	if _, err := e.cfg.Journal.Commit(ctx, c); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		e.cfg.Log.Warn("box event not recorded", "box_id", ev.Box, "session_id", id, "type", ev.Type, "error", err)
	}
	switch ev.Type {
	case holdfast.EventBoxStarted:
		e.tell(id, hook.Input{Event: hook.SandboxStarted, Trigger: ev.Started.Driver})
	case holdfast.EventBoxStopped, holdfast.EventBoxLost:
		e.tell(id, hook.Input{Event: hook.SandboxStopped, Trigger: string(ev.Type), Message: ev.Ended.Reason})
	}
}
