// Package engine carries sessions and turns: it starts, queues, steers and
// interrupts turns, pauses and resumes sessions, leases boxes from the pool, and
// continues after a crash what the log says was under way.
//
// The app builds one; httpapi calls it through interfaces of its own. It connects the rooms that own
// the parts of a session (place, permit, hooked, approvals, choices, network, account,
// conversation), and imports the journal and the runtime contract; never an adapter. Invariant
// (I-3, I-7, I-8, I-9): state is committed together with its event before anything is done or
// told because of it, and every decision about one session is taken under that session's lock.
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

// Agents is what the engine needs of the deployed agents.
type Agents interface {
	// Get is an agent by name; not_found for an unknown one.
	Get(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	// Instructions is the text of a version's CLAUDE.md or AGENTS.md.
	Instructions(ctx context.Context, version holdfast.VersionID) (string, error)
	// Settings are what a version says about permissions and hooks. They are shared:
	// nobody changes them.
	Settings(ctx context.Context, version holdfast.VersionID) (settings.Settings, error)
	// Folder is what a version brings under .claude. It is shared: nobody changes it.
	Folder(ctx context.Context, version holdfast.VersionID) (*folder.Folder, error)
	// Plugin is the host's directory with what a version brings for an agent CLI; empty
	// for nothing.
	Plugin(ctx context.Context, version holdfast.VersionID) (string, error)
	// Files are the files of a version, for the first box of a private workspace.
	Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error)
}

// Turns are the limits on running turns.
type Turns struct {
	// Silence fails a turn that shows no progress for that long (default 15 min).
	Silence time.Duration
	// KillGrace is how long each step of ending a stuck turn may take (default 10 s).
	KillGrace time.Duration
	// ApprovalTimeout is how long a question to a person stays open; then it is a
	// denial. 0 is for ever.
	ApprovalTimeout time.Duration
	// Warm is how many agents may wait, started, for the first turn of their session.
	Warm int
}

// Config configures an Engine. Stores, Journal, Runtimes, Agents, Sealer, Policy, Boxes, Defaults,
// Clock and Rand must be set.
type Config struct {
	Stores   Stores
	Journal  *journal.Journal
	Runtimes []runtime.Runtime
	Agents   Agents
	Sealer   choices.Sealer
	// Policy decides tool calls; each session adds its own layers to it.
	Policy *policy.Engine
	// Hooks are those of the server's owner; agents bring their own.
	Hooks hooked.Installed
	// Boxes are the boxes of the sessions, and the directory of their files.
	Boxes place.Config
	// Snapshots are copies of the sessions' files (default: resume.NoSnapshots).
	Snapshots resume.Snapshots
	// After are the stages that follow each turn, in order.
	After []stages.Stage
	// MaxCopy bounds the files of a tree that is copied into a box, in bytes; 0 is no bound.
	MaxCopy int64
	// Boot is the kernel's boot id. Without it power cuts go unnoticed.
	Boot string
	// Network is what boxes may connect to.
	Network network.Config
	// Defaults are for sessions that name nothing (the default runtime is native).
	Defaults choices.Defaults
	Turns    Turns
	// At is called when a turn passes a named point; nil outside crash tests.
	At    func(session holdfast.SessionID, point string)
	Clock func() time.Time
	Rand  io.Reader
	Log   *slog.Logger
}

// Engine is the server's core. Safe for concurrent use.
type Engine struct {
	p      *parts
	turns  *turns
	direct *direct.Work
}

// How many conversations are kept in memory, and about how many bytes of them; the one that
// was read last is kept in any case.
const (
	keptConversations = 256
	keptBytes         = 64 << 20
)

// New makes an engine. Start brings it to life.
func New(cfg Config) (*Engine, error) {
	s := cfg.Stores
	if len(cfg.Runtimes) == 0 || s.Sessions == nil || s.Views == nil || s.Search == nil || s.Approvals == nil || s.Rules == nil || s.Boots == nil ||
		s.Facts == nil || cfg.Policy == nil || cfg.Agents == nil || cfg.Journal == nil || cfg.Sealer == nil || cfg.Clock == nil || cfg.Rand == nil ||
		cfg.Defaults.Model == nil || cfg.Defaults.CheckModel == nil || cfg.Boxes.Files == nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "engine", "incomplete configuration")
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
		Store: s.Approvals, Turns: s.Sessions, Journal: cfg.Journal, Policy: cfg.Policy, Rules: p.policies, Timeout: cfg.Turns.ApprovalTimeout,
		Changed: p.rulesChanged, NewID: p.uuid, Clock: cfg.Clock, Log: cfg.Log,
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
		Files: p.files, Stop: p.boxes.Stop, Journal: cfg.Journal, Snapshots: cfg.Snapshots, Clock: cfg.Clock,
		OwnState: func(runtime string) bool { return runtime != permit.InServer },
		AtRisk: func(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error) {
			return p.guard.AtRisk(ctx, row)
		},
	})
	t := &turns{p: p}
	return &Engine{p: p, turns: t, direct: direct.New(byHand{p, t}, cfg.MaxCopy)}, nil
}

// live is what the running turn of a session knows.
func (p *parts) live(id holdfast.SessionID) (views.Live, bool) {
	h := p.units.host(id)
	if h == nil {
		return views.Live{}, false
	}
	return views.Live{
		Turn: h.r.id, Spent: h.acc.Spent(), Reserved: h.acc.Reserved(), ParkedUntil: h.acc.ParkedUntil(), Questions: int(h.waiting.Load()),
	}, true
}

// rulesChanged makes the running turn of a session read its permission rules again.
func (p *parts) rulesChanged(id holdfast.SessionID) {
	if h := p.units.host(id); h != nil {
		h.u.rules.Add(1)
	}
}

// Start continues what a former server left open: resumes cut off become
// errors, running turns go on from their log, queued ones follow. ctx is the
// engine's life; Close ends it in order. stop ends the boxes that were left
// instead of adopting them.
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
		Sync:     func(ctx context.Context) error { return e.p.cfg.Boxes.Files.Sync(ctx, dir) }, Clock: e.p.cfg.Clock, Log: e.p.cfg.Log,
	}); err != nil {
		return err
	}
	if err := e.p.boxes.Start(l.Base, stop); err != nil {
		return err
	}
	// First, so that a turn that goes on finds its question ended.
	if err := e.p.questions.ExpireDue(ctx); err != nil {
		return err
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

// Drain refuses new turns and waits until none runs, nor any hook or stage that follows one, or
// until ctx ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.p.life.Leave(false)
	if err := e.p.life.Turns.Wait(ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "drain", "turns still run: %w", err)
	}
	if err := e.p.life.Hooks.Wait(ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "drain", "hooks still run: %w", err)
	}
	return nil
}

// Close ends the engine. Turns that still run are let go exactly as a crash
// would: nothing more is recorded of them, and the next Start continues them.
// With stop the boxes end too. A runtime that does not return before ctx ends is
// unavailable; it can record nothing any more.
func (e *Engine) Close(ctx context.Context, stop bool) error {
	l := e.p.life
	l.Leave(true)
	l.CloseAll()
	// Pipes break before turns are cancelled: so no runtime can end in its box
	// what the next start will take up.
	first := e.p.boxes.Close(ctx, stop)
	l.LetGo()
	if err := l.Wait(ctx); err != nil && first == nil {
		first = err
	}
	if stop && first == nil && e.p.guard != nil {
		e.p.guard.End(ctx)
	}
	// The end is clean only if every judgement has finished.
	if err := e.p.judging.Close(first == nil); err != nil && first == nil {
		first = holdfast.Errorf(holdfast.KindUnavailable, "close", "%w", err)
	}
	return first
}

// Health is what /healthz answers.
func (e *Engine) Health(context.Context) holdfast.Health {
	h := holdfast.Health{Status: "ok", RunningTurns: len(e.p.units.busy())}
	if e.p.life.Ends() {
		h.Status = "draining"
	}
	return h
}

// Views reads what the API shows of sessions, turns and events.
func (e *Engine) Views() *views.Views { return e.p.views }

// Questions are those to persons.
func (e *Engine) Questions() *approvals.Questions { return e.p.questions }

// Boxes are the boxes of the server's sessions.
func (e *Engine) Boxes() *place.Boxes { return e.p.boxes }

// Direct is what people do in the boxes of sessions besides sending messages.
func (e *Engine) Direct() *direct.Work { return e.direct }

// Runtimes are the runtimes of the server.
func (e *Engine) Runtimes() runtime.Set { return e.p.runtimes }

// Network returns the destinations that the box of a session may reach at this moment.
func (e *Engine) Network(ctx context.Context, id holdfast.SessionID) (check.Reach, error) {
	row, err := e.p.liveRow(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.p.reach(ctx, row)
}

// RecordEgress writes what the proxy decided into the log of a session, as part of the
// turn that runs, if one does.
func (e *Engine) RecordEgress(ctx context.Context, id holdfast.SessionID, typ holdfast.EventType, d holdfast.EgressDecision) error {
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: typ, Turn: e.p.units.turnOf(id), Data: d}}
	_, err := e.p.cfg.Journal.Commit(ctx, c)
	return err
}

// Traffic is the session's running turn as the way out of its box sees it. It waits
// for a server that is just starting: a box may ask before its turn was taken up
// again. Without a running turn it is denied: a box spends nothing between turns.
func (e *Engine) Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error) {
	if err := await(ctx, e.p.life.Started, e.p.life.Base.Done()); err != nil {
		return nil, err
	}
	h := e.p.units.host(id)
	if h == nil || h.usable() != nil {
		return nil, holdfast.Errorf(holdfast.KindDenied, "egress", "no turn of session %s is running: nothing leaves its box between turns", id).
			WithHint("holdfast send %s TEXT", id)
	}
	if err := await(ctx, h.ready, h.Done()); err != nil {
		return nil, err
	}
	return h, nil
}

func await(ctx context.Context, done, over <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-over:
		return lifetime.LeftToNextStart("egress")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
