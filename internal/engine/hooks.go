package engine

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Hooks are the hooks that the server's owner installed, and where such hooks run.
// Those of an agent's version run in its boxes. The zero value has none.
type Hooks struct {
	Registry *hook.Registry
	// Places.Host and Places.HTTP; the box is the session's.
	Places hook.Places
}

// noticeHook is the code of a notice that a hook asked for.
const noticeHook = "hook.notification"

// hooks are those of a session: the server's, then its agent's.
type hooks struct{ server, agent *hook.Registry }

// hooksOf are a session's hooks.
func (e *Engine) hooksOf(ctx context.Context, row journal.Row) (hooks, error) {
	agent, ok := e.agents.hooks.Get(row.AgentVersion)
	if !ok {
		s, err := e.cfg.Agents.Settings(ctx, row.AgentVersion)
		if err == nil && len(s.Hooks) > 0 {
			agent = new(hook.Registry)
			err = agent.Load(s.Hooks, hook.InBox)
		}
		if err != nil {
			return hooks{}, err
		}
		e.agents.hooks.Keep(row.AgentVersion, agent)
	}
	return hooks{e.cfg.Hooks.Registry, agent}, nil
}

func (s hooks) empty() bool { return s.server.Empty() && s.agent.Empty() }

func (s hooks) has(e hook.Event) bool { return s.server.HasHooks(e) || s.agent.HasHooks(e) }

// run runs the hooks for an event. name names each run, by whose it is and its
// order there.
func (s hooks) run(ctx context.Context, in hook.Input, at hook.Places, name func(whose string, h *hook.Hook) holdfast.CallID) hook.Result {
	list := s.server.Hooks(in)
	server := len(list)
	list = append(list[:server:server], s.agent.Hooks(in)...)
	if len(list) == 0 {
		return hook.Result{}
	}
	whose := make(map[*hook.Hook]string, len(list))
	for i, h := range list {
		whose[h] = "server"
		if i >= server {
			whose[h] = "agent"
		}
	}
	at.Call = func(h *hook.Hook, _ hook.Input) holdfast.CallID { return name(whose[h], h) }
	return hook.Run(ctx, list, in, at)
}

// about fills in what every hook is told of the session.
func (e *Engine) about(ctx context.Context, row journal.Row, in hook.Input) hook.Input {
	in.Session, in.Mode, in.AgentType = row.ID, row.Mode, string(row.Agent)
	in.Cwd = e.cwd(row)
	in.TranscriptPath = e.transcriptPath(ctx, row)
	return in
}

// transcriptPath is where the session's agent keeps its conversation, once there is an
// agent that keeps one.
func (e *Engine) transcriptPath(ctx context.Context, row journal.Row) string {
	keeps, ok := e.runtimes[row.Runtime].(runtime.Transcriber)
	if !ok {
		return ""
	}
	states, err := e.cfg.Store.AgentStates(ctx, row.ID)
	if err != nil {
		// A hook runs without it rather than not at all.
		e.cfg.Log.WarnContext(ctx, "hooks are not told the transcript's path", "session_id", row.ID, "error", err)
		return ""
	}
	for _, s := range states {
		if s.Runtime == row.Runtime && s.Health == holdfast.HealthCurrent {
			return keeps.TranscriptPath(s.AgentID)
		}
	}
	return ""
}

// cwd is the tools' directory as they see it.
func (e *Engine) cwd(row journal.Row) string {
	if row.Trust == holdfast.Trusted {
		return e.boxes.Scope(row.ID).Workspace()
	}
	return "/workspace"
}

// drafts are the events of a run.
func drafts(ran holdfast.HookRan) []journal.Draft {
	out := []journal.Draft{{Type: holdfast.EventHookRan, Data: ran}}
	if n := ran.Notification; n != nil {
		text := n.Title
		if n.Body != "" {
			text += ": " + n.Body
		}
		level := n.Level
		if level == "info" {
			level = ""
		}
		out = append(out, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: noticeHook, Text: text, Level: level}})
	}
	return out
}

// tell fires the hooks for an event that no turn is part of, in the background: a
// crash may lose it. What they say has no say in what happened.
func (e *Engine) tell(id holdfast.SessionID, in hook.Input) {
	u := e.claim(id)
	if !e.crews.hooks.run(func() {
		defer e.disclaim(u)
		e.fire(e.base, u, in)
	}) {
		e.disclaim(u)
	}
}

// tellOf is tell for a session whose row is at hand: nothing is begun when no hook
// waits for the event.
func (e *Engine) tellOf(ctx context.Context, row journal.Row, in hook.Input) {
	set, err := e.hooksOf(ctx, row)
	if err != nil || set.has(in.Event) {
		e.tell(row.ID, in)
	}
}

// fire runs the hooks for an event that no turn is part of, and records them.
func (e *Engine) fire(ctx context.Context, u *unit, in hook.Input) {
	row, err := e.cfg.Store.Row(ctx, u.id)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return
	}
	set, herr := hooks{}, error(nil)
	if err == nil {
		set, herr = e.hooksOf(ctx, row)
	}
	if err != nil || herr != nil {
		e.cfg.Log.WarnContext(ctx, "hooks not run", "session_id", u.id, "event", in.Event, "error", err, "hooks_error", herr)
		return
	}
	if !set.has(in.Event) {
		return
	}
	at := e.cfg.Hooks.Places
	at.Now = e.cfg.Clock
	box := &borrowed{e: e, u: u, live: !startsBox(in.Event)}
	defer box.release()
	at.Box = &boxRunner{box: box.get, began: func(holdfast.CallID, *sandbox.Box) {}}
	res := set.run(ctx, e.about(ctx, row, in), at, func(string, *hook.Hook) holdfast.CallID {
		// Without randomness the run has no name, and a box refuses it.
		id, _ := e.uuid()
		return holdfast.CallID(id)
	})
	c := journal.NewChange(u.id)
	for _, ran := range res.Runs {
		c.Events = append(c.Events, drafts(ran.HookRan)...)
		box.ran = append(box.ran, ran.Call)
	}
	if len(c.Events) == 0 {
		return
	}
	if _, err := e.cfg.Journal.Commit(context.WithoutCancel(ctx), c); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		e.cfg.Log.WarnContext(ctx, "hooks not recorded", "session_id", u.id, "event", in.Event, "error", err)
	}
}

// startsBox reports whether hooks for an event may start the session's box. At the
// end of a box or a session none is started for them.
func startsBox(e hook.Event) bool {
	switch e {
	case hook.SessionEnd, hook.SessionPaused, hook.SandboxStarted, hook.SandboxStopped:
		return false
	}
	return true
}

// borrowed is the session's box for hooks outside of a turn.
type borrowed struct {
	e    *Engine
	u    *unit
	live bool

	mu   sync.Mutex
	hold *pool.Hold
	ran  []holdfast.CallID
}

func (b *borrowed) get(ctx context.Context) (*sandbox.Box, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold != nil {
		select {
		case <-b.hold.Box.Done():
			b.hold.Release()
			b.hold = nil
		default:
			return b.hold.Box, nil
		}
	}
	var err error
	b.hold, err = b.e.acquire(ctx, b.u, place.Claim{Live: b.live}, nil)
	if err == nil {
		err = intact(b.hold, b.u.id, true)
	}
	if err != nil {
		b.hold = nil
		return nil, err
	}
	return b.hold.Box, nil
}

// release lets the box forget what ran and gives it back.
func (b *borrowed) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold != nil {
		b.hold.Box.Release(b.ran...)
		b.hold.Release()
	}
}
