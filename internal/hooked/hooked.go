// Package hooked runs the hooks of sessions: those of the server's owner on the host, those of an
// agent version in the session's box.
//
// The engine owns a Hooks for the server and a Turn for each turn that has hooks. It imports hook,
// the journal and the sandbox; it knows sessions through the interface Sessions. Invariant (HZ-4):
// a hook's run that is in the log is never made again. The run of a turn is recorded with the
// turn's next change, ahead of it, and its box keeps the outcome until then.
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

// Installed are the hooks that the server's owner installed, and where such hooks run.
// Those of an agent's version run in its boxes. The zero value has none.
type Installed struct {
	Registry *hook.Registry
	// Places.Host and Places.HTTP; the box is the session's.
	Places hook.Places
}

// Sessions is what hooks need of sessions.
type Sessions interface {
	// Row returns a session's row; not_found for an unknown one.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Where returns the tools' directory and the path of the agent's transcript, as hooks of the
	// session see them; the path is empty for an agent without one.
	Where(ctx context.Context, row journal.Row) (cwd, transcript string)
	// Claim claims the session's box, and starts it if need be; with live it is denied where
	// none runs.
	Claim(ctx context.Context, id holdfast.SessionID, live bool) (*pool.Hold, error)
}

// Config configures Hooks. All but Installed must be set.
type Config struct {
	Installed Installed
	// Agent returns the hooks of an agent version.
	Agent    func(ctx context.Context, version holdfast.VersionID) (hook.Config, error)
	Sessions Sessions
	Journal  *journal.Journal
	// Go runs a function in the background, with a context that ends with the server. It reports
	// false when the server is closing: then the function does not run.
	Go func(func(context.Context)) bool
	// NewCall makes a call id.
	NewCall func() (holdfast.CallID, error)
	Clock   func() time.Time
	Log     *slog.Logger
}

// Hooks runs the hooks of all sessions. Safe for concurrent use.
type Hooks struct {
	cfg Config
	// agents are the hooks of agent versions; nil for a version without any.
	agents versions.Cache[*hook.Registry]
}

// New makes Hooks.
func New(cfg Config) *Hooks { return &Hooks{cfg: cfg} }

// noticeHook is the code of a notice that a hook asked for.
const noticeHook = "hook.notification"

// set are the hooks of one session: the server's, then its agent's.
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

// run runs the hooks for an event. name returns the call id of a run, from whose hook it is.
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

// about fills in what every hook receives about its session.
func (h *Hooks) about(ctx context.Context, row journal.Row, in hook.Input) hook.Input {
	in.Session, in.Mode, in.AgentType = row.ID, row.Mode, string(row.Agent)
	in.Cwd, in.TranscriptPath = h.cfg.Sessions.Where(ctx, row)
	return in
}

// places returns where hooks run; box runs those of agent versions.
func (h *Hooks) places(box *boxRunner) hook.Places {
	at := h.cfg.Installed.Places
	at.Now, at.Box = h.cfg.Clock, box
	return at
}

// drafts returns the events of a run.
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

// Tell runs the hooks for an event outside of any turn, in the background; a crash may lose
// the run. Their output is ignored: the event has already happened.
func (h *Hooks) Tell(id holdfast.SessionID, in hook.Input) {
	h.cfg.Go(func(ctx context.Context) { h.Fire(ctx, id, in) })
}

// TellOf is Tell for a caller that has the session's row: it starts nothing where no hook
// waits for the event.
func (h *Hooks) TellOf(ctx context.Context, row journal.Row, in hook.Input) {
	set, err := h.of(ctx, row)
	if err != nil || set.has(in.Event) {
		h.Tell(row.ID, in)
	}
}

// Fire runs the hooks for an event outside of any turn, and records them.
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
		h.cfg.Log.WarnContext(ctx, "hooks not run", "session_id", id, "event", in.Event, "error", err)
		return
	}
	if !hooks.has(in.Event) {
		return
	}
	box := &borrowed{sessions: h.cfg.Sessions, id: id, live: !startsBox(in.Event)}
	defer box.release()
	at := h.places(&boxRunner{box: box.get, began: func(holdfast.CallID, *sandbox.Box) {}})
	res := hooks.run(ctx, h.about(ctx, row, in), at, func(string, *hook.Hook) holdfast.CallID {
		// Without randomness the run has no name, and a box refuses it.
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
		h.cfg.Log.WarnContext(ctx, "hooks not recorded", "session_id", id, "event", in.Event, "error", err)
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

// release lets the box forget what ran and gives it back.
func (b *borrowed) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold != nil {
		b.hold.Box.Release(b.ran...)
		b.hold.Release()
	}
}
