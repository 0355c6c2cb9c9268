package place

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// settled returns the finished calls of a session that its log no longer needs: all except intents without an outcome,
// calls of current agents, and hooks' runs of the running turn that are not recorded yet.
func settled(ctx context.Context, s Sessions, id holdfast.SessionID, held []wire.CallState) ([]holdfast.CallID, error) {
	hook := s.Hooks(id)
	open, ran := map[holdfast.CallID]bool{}, map[holdfast.CallID]bool{}
	for ev, err := range s.Log(ctx, id) {
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
	states, err := s.Agents(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		// Keep the call of a current agent: its last output is not recorded yet.
		open[st.Call] = open[st.Call] || st.Health == holdfast.HealthCurrent
	}
	var done []holdfast.CallID
	for _, c := range held {
		if hook(c.Call) && !ran[c.Call] {
			continue
		}
		if !open[c.Call] {
			done = append(done, c.Call)
		}
	}
	return done, nil
}

// idle returns the calls in a box that run agents of a session; none if the session has an open turn (see Sessions.Open).
func idle(ctx context.Context, s Sessions, id holdfast.SessionID, box holdfast.BoxID) []holdfast.CallID {
	if open, err := s.Open(ctx, id); err != nil || open {
		return nil
	}
	states, err := s.Agents(ctx, id)
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

// Works reports whether a call of the session to which box belongs runs in it.
func Works(ctx context.Context, box *sandbox.Box) bool {
	calls, err := box.Calls(ctx)
	return err == nil && slices.ContainsFunc(calls, func(c wire.CallState) bool { return c.Status == wire.CallRunning })
}

// OnlyAgents returns a function that reports whether every running call in a box, of any session, is an agent process
// of the session id. If alone is true, it also requires that every process in the box belongs to these calls.
func OnlyAgents(s Sessions, id holdfast.SessionID) func(ctx context.Context, box *sandbox.Box, alone bool) bool {
	return func(ctx context.Context, box *sandbox.Box, alone bool) bool {
		calls, err := box.Of("").Calls(ctx)
		if err != nil {
			return false
		}
		states, err := s.Agents(ctx, id)
		if err != nil {
			return false
		}
		agents := map[holdfast.CallID]bool{}
		for _, st := range states {
			agents[st.Call] = st.Call != ""
		}
		if slices.ContainsFunc(calls, func(c wire.CallState) bool { return c.Status == wire.CallRunning && !agents[c.Call] }) {
			return false
		}
		if !alone {
			return true
		}
		list, err := box.Of("").Processes(ctx)
		return err == nil && !slices.ContainsFunc(list, func(p wire.Process) bool { return p.State != "Z" && !agents[p.Call] })
	}
}
