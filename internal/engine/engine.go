// Package engine runs sessions and turns: it starts, queues, steers and interrupts turns, pauses and resumes sessions,
// claims boxes from the pool, and after a crash continues the turns that the log shows as running.
//
// The app builds one; httpapi calls it through interfaces of its own. It connects the packages that own the parts of a
// session (place, permit, hooked, approvals, choices, network, account, conversation), and imports the journal and the
// runtime contract; never an adapter. Invariant (I-3, I-7, I-8, I-9): state is committed together with its event before
// anything is done or reported because of it, and turns of a session start, queue and end under that session's lock.
package engine

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/hooked"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/internal/lifetime"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/resume"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/internal/stages"
	"github.com/holdfast-run/holdfast/internal/views"
	"github.com/holdfast-run/holdfast/internal/watchdog"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Agents gives the engine the deployed agents.
type Agents interface {
	// Get returns an agent by name, or a not_found error if the name is unknown.
	Get(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	// Instructions returns the text of a version's CLAUDE.md or AGENTS.md.
	Instructions(ctx context.Context, version holdfast.VersionID) (string, error)
	// Settings returns the permissions and hooks that a version declares. The result is shared:
	// callers must not change it.
	Settings(ctx context.Context, version holdfast.VersionID) (settings.Settings, error)
	// Folder returns the content of a version's .claude folder. The result is shared: callers must not change it.
	Folder(ctx context.Context, version holdfast.VersionID) (*folder.Folder, error)
	// Plugin returns the host directory with a version's plugin for an agent CLI, or "" if the version has none.
	Plugin(ctx context.Context, version holdfast.VersionID) (string, error)
	// Files returns the files of a version, to be copied into a new private workspace.
	Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error)
}

// Turns are the limits on running turns.
type Turns struct {
	// Silence fails a turn that shows no progress for that long (default 15 min).
	Silence time.Duration
	// KillGrace is how long each step of ending a stuck turn may take (default 10 s).
	KillGrace time.Duration
	// ApprovalTimeout is how long an approval question stays open before it is denied. 0 means without limit.
	ApprovalTimeout time.Duration
	// Warm is the largest number of agents that may be started ahead of their session's next turn. 0 starts none.
	Warm int
	// Accepts must be set. It returns an error that says why the session may start no turn, and may not be resumed, now.
	// Engine.Alone waits for calls of Send and Resume, and for direct work, that have called Accepts.
	Accepts func(session holdfast.SessionID) error
}

// Config configures an Engine. Stores, Journal, Runtimes, Agents, Sealer, Policy, Boxes, Defaults,
// Turns.Accepts, Clock and Rand must be set.
type Config struct {
	Stores   Stores
	Journal  *journal.Journal
	Runtimes []runtime.Runtime
	Agents   Agents
	Sealer   choices.Sealer
	// Policy decides tool calls; each session adds its own layers to it.
	Policy *policy.Engine
	// Hooks are the hooks that the server's owner installed. Agents add their own.
	Hooks hooked.Installed
	// Boxes are the boxes of the sessions, and the directory of their files.
	Boxes place.Config
	// Snapshots makes and restores snapshots of the sessions' files (default: resume.NoSnapshots, which makes none).
	Snapshots resume.Snapshots
	// Before is called by Start before any turn continues; nil calls nothing.
	Before func(context.Context) error
	// After are the stages (work on the session's files) that run after each turn, in order.
	After []stages.Stage
	// MaxCopy is the largest total size of a file tree that is copied into a box, in bytes; 0 means unlimited.
	MaxCopy int64
	// Boot is the text by which boots.Here names this boot of the machine. If it is empty, power cuts are not detected.
	Boot string
	// Network configures which destinations boxes may connect to.
	Network network.Config
	// Defaults apply to sessions whose request leaves a choice out (the default runtime is native).
	Defaults choices.Defaults
	Turns    Turns
	// At is called when a turn passes a named point; only crash tests set it.
	At    func(session holdfast.SessionID, point string)
	Clock func() time.Time
	Rand  io.Reader
	Log   *slog.Logger
}

// Engine runs the sessions and turns of one server. Safe for concurrent use.
type Engine struct {
	p      *parts
	turns  *turns
	direct *direct.Work
}

// keptConversations and keptBytes bound the conversations that are cached in memory, by number and
// by approximate size. The most recently read one is always kept.
const (
	keptConversations = 256
	keptBytes         = 64 << 20
)

// New builds an engine. Nothing runs until Start.
func New(cfg Config) (*Engine, error) {
	s := cfg.Stores
	if len(cfg.Runtimes) == 0 || s.Sessions == nil || s.Views == nil || s.Search == nil || s.Approvals == nil || s.Rules == nil || s.Boots == nil ||
		s.Facts == nil || cfg.Policy == nil || cfg.Agents == nil || cfg.Journal == nil || cfg.Sealer == nil || cfg.Clock == nil || cfg.Rand == nil ||
		cfg.Defaults.Model == nil || cfg.Defaults.CheckModel == nil || cfg.Boxes.Files == nil || cfg.Turns.Accepts == nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "engine", "the engine's configuration is incomplete: a required field is not set")
	}
	if cfg.Turns.Silence == 0 {
		cfg.Turns.Silence = 15 * time.Minute
	}
	if cfg.Turns.KillGrace == 0 {
		cfg.Turns.KillGrace = 10 * time.Second
	}
	if cfg.Defaults.Runtime == "" {
		cfg.Defaults.Runtime = permit.InServer
	}
	if cfg.Snapshots == nil {
		cfg.Snapshots = resume.NoSnapshots{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &parts{
		cfg: cfg, life: lifetime.New(cfg.Log), runtimes: runtime.NewSet(cfg.Runtimes),
		conversations: conversation.NewKept(keptConversations, keptBytes),
	}
	var err error
	if p.network, err = network.New(cfg.Network); err != nil {
		return nil, err
	}
	p.choices = choices.New(choices.Config{
		Defaults: cfg.Defaults, Agent: cfg.Agents.Get, Runtimes: p.runtimes, Network: p.network, Sealer: cfg.Sealer,
		Root: cfg.Boxes.UIDBase != 0, NewID: p.uuid, Clock: cfg.Clock,
	})
	p.boxes = place.New(cfg.Boxes, sessions{p})
	p.policies = permit.New(cfg.Policy, layered{p})
	p.views = views.New(s.Views, s.Search, cfg.Journal, p.live)
	p.questions = approvals.New(approvals.Config{
		Store: s.Approvals, Sessions: s.Sessions, Journal: cfg.Journal, Policy: cfg.Policy, Rules: p.policies, Timeout: cfg.Turns.ApprovalTimeout,
		NewID: p.uuid, Clock: cfg.Clock, Log: cfg.Log,
	})
	p.hooks = hooked.New(hooked.Config{
		Installed: cfg.Hooks, Sessions: sessions{p}, Journal: cfg.Journal,
		Agent: func(ctx context.Context, version holdfast.VersionID) (hook.Config, error) {
			s, err := cfg.Agents.Settings(ctx, version)
			return s.Hooks, err
		},
		Go:      func(fn func(context.Context)) bool { return p.life.Hooks.Run(func() { fn(p.life.Base) }) },
		NewCall: p.newCall, Clock: cfg.Clock, Log: cfg.Log,
	})
	p.resumes = resume.New(resume.Config{
		Ready: cfg.Boxes.Ready, Row: p.row, Files: p.files, Stop: p.boxes.Stop, Journal: cfg.Journal, Snapshots: cfg.Snapshots, Clock: cfg.Clock,
		OwnState: func(runtime string) bool { return runtime != permit.InServer },
		AtRisk: func(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error) {
			return p.guard.AtRisk(ctx, row)
		},
	})
	t := &turns{p: p}
	return &Engine{p: p, turns: t, direct: direct.New(byHand{p, t}, cfg.MaxCopy)}, nil
}

// live returns the usage, the wait for a provider and the number of open questions of a session's running turn, or false
// if no turn runs.
func (p *parts) live(id holdfast.SessionID) (views.Live, bool) {
	h := p.units.host(id)
	if h == nil {
		return views.Live{}, false
	}
	return views.Live{
		Turn: h.r.id, Spent: h.acc.Spent(), Reserved: h.acc.Reserved(), ParkedUntil: h.acc.ParkedUntil(), Questions: int(h.waiting.Load()),
	}, true
}

// Start continues the work that the previous server process left open: sessions whose resume was cut off get the status
// error, running turns continue from their logs, and queued turns start. ctx bounds the engine's lifetime; Close ends it
// in order. If stop is true, boxes that still run are stopped instead of adopted.
func (e *Engine) Start(ctx context.Context, stop bool) error {
	l := e.p.life
	l.Begin(ctx)
	dir := e.p.cfg.Boxes.Dir
	var err error
	if e.p.judging, err = judging.Open(filepath.Join(dir, "judging")); err != nil {
		return err
	}
	if e.p.guard, err = boots.Watch(ctx, boots.GuardConfig{
		Facts: e.p.cfg.Stores.Facts, Sessions: e.p.cfg.Stores.Boots, Journal: e.p.cfg.Journal, Boot: e.p.cfg.Boot,
		InServer: func(runtime string) bool { return runtime == permit.InServer },
		Sync:     func(ctx context.Context) error { return place.Sync(ctx, e.p.boxes) }, Clock: e.p.cfg.Clock, Log: e.p.cfg.Log,
	}); err != nil {
		return err
	}
	if err := e.p.boxes.Start(l.Base, stop); err != nil {
		return err
	}
	// Expire overdue questions first, so that a turn that continues finds its question expired.
	if err := e.p.questions.ExpireDue(ctx); err != nil {
		return err
	}
	if e.p.cfg.Before != nil {
		if err := e.p.cfg.Before(l.Base); err != nil {
			return err
		}
	}
	if err := e.turns.recover(ctx); err != nil {
		return err
	}
	dog := watchdog.New(watchdog.Config{
		Turns: e.turns.running, Silence: e.p.cfg.Turns.Silence, Grace: e.p.cfg.Turns.KillGrace,
		Go: l.Rest.Run, Clock: e.p.cfg.Clock, Log: e.p.cfg.Log,
	})
	l.Rest.Run(func() { dog.Run(l.Base) })
	l.Rest.Run(func() { e.p.questions.Expire(l.Base, l.Leaving) })
	l.Rest.Run(func() { e.p.guard.Forget(l.Base, l.Leaving) })
	close(l.Started)
	return nil
}

// Drain refuses new turns and waits until every turn, and every hook and stage that follows one,
// has ended, or until ctx ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.p.life.Leave(false)
	if err := e.p.life.Turns.Wait(ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "drain", "turns were still running when the shutdown stopped waiting: %w", err)
	}
	if err := e.p.life.Hooks.Wait(ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "drain", "hooks were still running when the shutdown stopped waiting: %w", err)
	}
	return nil
}

// Close stops the engine. Turns that still run are abandoned as in a crash: nothing more is recorded of them, and the
// next Start continues them. With stop the boxes end too. If a runtime does not return before ctx ends, Close fails
// with unavailable; that runtime can record nothing any more.
func (e *Engine) Close(ctx context.Context, stop bool) error {
	l := e.p.life
	l.Leave(true)
	l.CloseAll()
	// Close the connections to boxes before cancelling turns, so that no runtime can end a process in
	// its box that the next start will continue.
	first := e.p.boxes.Close(ctx, stop)
	l.LetGo()
	if err := l.Wait(ctx); err != nil && first == nil {
		first = err
	}
	if stop && first == nil && e.p.guard != nil {
		e.p.guard.End(ctx)
	}
	// Forget the crash counts only if all work above ended, and with it every judgement of a call.
	if err := e.p.judging.Close(first == nil); err != nil && first == nil {
		first = holdfast.Errorf(holdfast.KindUnavailable, "close", "%w", err)
	}
	return first
}

// Health returns the server's state for /healthz.
func (e *Engine) Health(context.Context) holdfast.Health {
	h := holdfast.Health{Status: "ok", RunningTurns: len(e.p.units.busy())}
	if e.p.life.Ends() {
		h.Status = "draining"
	}
	return h
}

// Views returns the reader of sessions, turns and events as the API shows them.
func (e *Engine) Views() *views.Views { return e.p.views }

// Questions returns the approval questions to people.
func (e *Engine) Questions() *approvals.Questions { return e.p.questions }

// Boxes returns the boxes of the server's sessions.
func (e *Engine) Boxes() *place.Boxes { return e.p.boxes }

// Direct returns the operations that people run in sessions' boxes without a turn: commands, terminals and files.
func (e *Engine) Direct() *direct.Work { return e.direct }

// Runtimes returns the runtimes of the server.
func (e *Engine) Runtimes() runtime.Set { return e.p.runtimes }

// Network returns the destinations that the box of a session may reach at this moment.
func (e *Engine) Network(ctx context.Context, id holdfast.SessionID) (check.Reach, error) {
	row, err := e.p.liveRow(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.p.reach(ctx, row)
}

// RecordEgress records a decision of the network proxy in the log of a session, as part of the
// running turn if there is one.
func (e *Engine) RecordEgress(ctx context.Context, id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) error {
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: typ, Turn: e.p.units.turnOf(id), Data: d}}
	_, err := e.p.cfg.Journal.Commit(ctx, c)
	return err
}

// Traffic returns the session's running turn for the egress broker and proxy, which meter and
// record the box's traffic. During the server's start it waits, because a box may ask before its
// turn is continued. It fails with denied if no turn runs: a box may spend nothing between turns.
func (e *Engine) Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error) {
	if err := lifetime.Await(ctx, "egress", e.p.life.Started, e.p.life.Base.Done()); err != nil {
		return nil, err
	}
	h := e.p.units.host(id)
	if h == nil || h.usable() != nil {
		return nil, holdfast.Errorf(holdfast.KindDenied, "egress", "no turn of session %s is running: its box has no network access between turns", id).
			WithHint("start a turn: holdfast send %s TEXT", id)
	}
	if err := lifetime.Await(ctx, "egress", h.ready, h.Done()); err != nil {
		return nil, err
	}
	return h, nil
}
