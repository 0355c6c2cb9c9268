// Package hooked runs the hooks of sessions: those of the server's owner at the place that each one
// names, those of an agent version in the session's box.
//
// The engine owns a Hooks for the server and a Turn for each turn that has hooks. It imports hook,
// policy, the journal, pool and sandbox; it reaches sessions through the interface Sessions. Invariant
// (HZ-4): a hook run that is in the log is never repeated. A run in a turn is recorded with the
// turn's next change, before that change's own events, and the box keeps its result until then.
package hooked

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/versions"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Installed are the hooks that the server's owner installed, and the runners for them. Hooks of an
// agent version are not among them. The zero value has no hooks.
type Installed struct {
	Registry *hook.Registry
	// Places.Host and Places.HTTP run the hooks; Places.Box is ignored, because each session has its
	// own box.
	Places hook.Places
}

// Sessions gives hooks access to their sessions.
type Sessions interface {
	// Row returns a session's row; not_found for an unknown session.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Where returns the working directory of the tools and the path of the agent's transcript, as the
	// session's hooks receive them. The path is empty if the agent writes no transcript.
	Where(ctx context.Context, row journal.Row) (cwd, transcript string)
	// Claim claims the session's box and starts it if necessary. With live it fails with denied if
	// the box does not run.
	Claim(ctx context.Context, id holdfast.SessionID, live bool) (*pool.Hold, error)
}

// Config configures Hooks. All but Installed must be set.
type Config struct {
	Installed Installed
	// Agent returns the hooks of an agent version.
	Agent    func(ctx context.Context, version holdfast.VersionID) (hook.Config, error)
	Sessions Sessions
	Journal  *journal.Journal
	// Go runs a function in the background, with a context that ends with the server. It returns
	// false, without running the function, if the server is closing.
	Go func(func(context.Context)) bool
	// NewCall returns a new call id.
	NewCall func() (holdfast.CallID, error)
	Clock   func() time.Time
	Log     *slog.Logger
}

// Hooks runs the hooks of all sessions. Safe for concurrent use.
type Hooks struct {
	cfg Config
	// agents caches the hooks of agent versions; nil for a version without hooks.
	agents versions.Cache[*hook.Registry]
}

// New returns the Hooks of a server.
func New(cfg Config) *Hooks { return &Hooks{cfg: cfg} }

// noticeHook is the code of a notice that a hook's output asked for.
const noticeHook = "hook.notification"

// set holds the hooks of one session: the server's, which run first, and its agent's.
type set struct{ server, agent *hook.Registry }

// of returns the hooks of a session.
func (h *Hooks) of(ctx context.Context, row journal.Row) (set, error) {
	agent, ok := h.agents.Get(row.AgentVersion)
	if !ok {
		cfg, err := h.cfg.Agent(ctx, row.AgentVersion)
		if err == nil && len(cfg) > 0 {
			agent = new(hook.Registry)
			err = agent.Load(cfg, hook.InBox)
		}
		if err != nil {
			return set{}, err
		}
		h.agents.Keep(row.AgentVersion, agent)
	}
	return set{h.cfg.Installed.Registry, agent}, nil
}

func (s set) empty() bool { return s.server.Empty() && s.agent.Empty() }

func (s set) has(e hook.Event) bool { return s.server.HasHooks(e) || s.agent.HasHooks(e) }

// run runs the hooks for an event. name returns the call id for a run; whose is "server" or
// "agent".
func (s set) run(ctx context.Context, in hook.Input, at hook.Places, name func(whose string, h *hook.Hook) holdfast.CallID) hook.Result {
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

// about fills in the fields of a hook's input that describe the session.
func (h *Hooks) about(ctx context.Context, row journal.Row, in hook.Input) hook.Input {
	in.Session, in.Mode, in.AgentType = row.ID, row.Mode, string(row.Agent)
	in.Cwd, in.TranscriptPath = h.cfg.Sessions.Where(ctx, row)
	return in
}

// places returns the runners of hooks; box runs the hooks whose place is the session's box.
func (h *Hooks) places(box *boxRunner) hook.Places {
	at := h.cfg.Installed.Places
	at.Now, at.Box = h.cfg.Clock, box
	return at
}

// drafts returns the events that record a hook run: the run, and the notice that it asked for.
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

// Tell runs the hooks for an event outside of any turn, in the background. A crash may lose the
// run. The hooks' output is ignored, because the event has already happened.
func (h *Hooks) Tell(id holdfast.SessionID, in hook.Input) {
	h.cfg.Go(func(ctx context.Context) { h.Fire(ctx, id, in) })
}

// TellOf is Tell for a caller that has the session's row: it starts no goroutine if the session has
// no hook for the event.
func (h *Hooks) TellOf(ctx context.Context, row journal.Row, in hook.Input) {
	set, err := h.of(ctx, row)
	if err != nil || set.has(in.Event) {
		h.Tell(row.ID, in)
	}
}

// Fire runs the hooks for an event outside of any turn, waits for them, and records the runs.
func (h *Hooks) Fire(ctx context.Context, id holdfast.SessionID, in hook.Input) {
	row, err := h.cfg.Sessions.Row(ctx, id)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return
	}
	var hooks set
	if err == nil {
		hooks, err = h.of(ctx, row)
	}
	if err != nil {
		h.cfg.Log.WarnContext(ctx, "the hooks for an event could not be run", "session_id", id, "event", in.Event, "error", err)
		return
	}
	if !hooks.has(in.Event) {
		return
	}
	box := &borrowed{sessions: h.cfg.Sessions, id: id, live: !startsBox(in.Event)}
	defer box.release()
	at := h.places(&boxRunner{box: box.get, began: func(holdfast.CallID, *sandbox.Box) {}})
	res := hooks.run(ctx, h.about(ctx, row, in), at, func(string, *hook.Hook) holdfast.CallID {
		// If no id can be made the run gets an empty one, which the box refuses.
		call, _ := h.cfg.NewCall()
		return call
	})
	c := journal.NewChange(id)
	for _, ran := range res.Runs {
		c.Events = append(c.Events, drafts(ran.HookRan)...)
		box.ran = append(box.ran, ran.Call)
	}
	if len(c.Events) == 0 {
		return
	}
	if _, err := h.cfg.Journal.Commit(context.WithoutCancel(ctx), c); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		h.cfg.Log.WarnContext(ctx, "hook runs could not be recorded", "session_id", id, "event", in.Event, "error", err)
	}
}

// startsBox reports whether hooks for an event may start the session's box. They may not for events
// about the start or stop of a box, a snapshot of its files, or the pause or end of a session.
func startsBox(e hook.Event) bool {
	switch e {
	case hook.SessionEnd, hook.SessionPaused, hook.SandboxStarted, hook.SandboxStopped, hook.SnapshotTaken:
		return false
	}
	return true
}

// borrowed claims a session's box for hooks outside of a turn, when the first of them needs it.
type borrowed struct {
	sessions Sessions
	id       holdfast.SessionID
	live     bool

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
	hold, err := b.sessions.Claim(ctx, b.id, b.live)
	if err != nil {
		return nil, err
	}
	b.hold = hold
	return hold.Box, nil
}

// release gives the box back and lets it forget the runs.
func (b *borrowed) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold != nil {
		b.hold.Box.Release(b.ran...)
		b.hold.Release()
	}
}
