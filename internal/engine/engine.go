// Package engine carries sessions and turns: it starts, queues, steers and
// interrupts turns, pauses and resumes sessions, leases boxes from the pool, and
// continues after a crash what the log says was under way.
//
// The app builds one; httpapi calls it through interfaces of its own. It imports
// the journal, the pool, the runtime contract, policy and rooted; never an
// adapter. Invariant (I-3, I-7, I-8, I-9): state is committed together with its event before anything
// is done or told because of it, and every decision about one session is taken
// under that session's lock.
package engine

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/judging"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/internal/versions"
	"github.com/holdfast-run/holdfast/policy"
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

// Sealer encrypts what must not be readable at rest.
type Sealer interface {
	Seal(context string, plain []byte) ([]byte, error)
	Open(context string, sealed []byte) ([]byte, error)
}

// Config configures an Engine. Store, Journal, Boxes, Runtimes, Agents, Sealer,
// Policy, Clock and Rand must be set.
type Config struct {
	Store    Store
	Journal  *journal.Journal
	Runtimes []runtime.Runtime
	Agents   Agents
	Sealer   Sealer
	// Policy decides tool calls; each session adds its own layers to it.
	Policy *policy.Engine
	// Hooks are those of the server's owner; agents bring their own.
	Hooks Hooks
	// Boxes are the boxes of the sessions, and the directory of their files.
	Boxes place.Config
	// MaxCopy bounds the files of a tree that is copied into a box, in bytes; 0 is no bound.
	MaxCopy int64
	// Boot is the kernel's boot id. Without it power cuts go unnoticed.
	Boot string
	// Network is what boxes may connect to.
	Network NetworkConfig
	// DefaultTrust, DefaultRuntime (default native) and DefaultModel are for sessions
	// that name none. DefaultModel is asked for each of them and is required.
	DefaultTrust   holdfast.Trust
	DefaultRuntime string
	DefaultModel   func(ctx context.Context) (string, error)
	// CheckModel refuses a model name that no session may have; required.
	CheckModel func(name string) error
	// Budget and TurnBudget are for sessions that name none.
	Budget, TurnBudget holdfast.Budget
	// TurnSilence fails a turn that shows no progress for that long (default 15 min).
	TurnSilence time.Duration
	// Warm is how many agents may wait, started, for the first turn of their session.
	Warm int
	// ApprovalTimeout is how long a question to a person stays open; then it is a
	// denial. 0 is for ever.
	ApprovalTimeout time.Duration
	// KillGrace is how long each step of ending a stuck turn may take (default 10 s).
	KillGrace time.Duration
	// At is told when a turn passes a named point; nil outside crash tests.
	At    func(session holdfast.SessionID, point string)
	Clock func() time.Time
	Rand  io.Reader
	Log   *slog.Logger
}

// versioned is what is kept of agent versions: their policies, and their hooks, nil without any.
type versioned struct {
	policies *permit.Policies
	hooks    versions.Cache[*hook.Registry]
}

// Engine is the server's core. Safe for concurrent use.
type Engine struct {
	cfg      Config
	runtimes map[string]runtime.Runtime
	boxes    *place.Boxes
	direct   *direct.Work

	// conversations are those of the sessions that worked last.
	conversations *conversation.Kept

	agents  versioned
	warmed  warmed
	network network

	// base is cancelled when the engine lets go of its turns.
	base  context.Context
	letGo context.CancelFunc
	// leaving is closed by the first Drain or Close; started when Start has taken up
	// what was left.
	leaving, started chan struct{}
	crews            crews
	// judging remembers across crashes which calls are being judged.
	judging *judging.File
	// boots remembers the boot of the machine; nil if it is unknown.
	boots *boots.Record
	// bells ring when a question has its answer.
	bells bells

	mu     sync.Mutex
	units  map[holdfast.SessionID]*unit
	drain  bool
	detach bool
}

// How many conversations are kept in memory, and about how many bytes of them; the one that
// was read last is kept in any case.
const (
	keptConversations = 256
	keptBytes         = 64 << 20
)

// New makes an engine. Start brings it to life.
func New(cfg Config) (*Engine, error) {
	if cfg.TurnSilence == 0 {
		cfg.TurnSilence = 15 * time.Minute
	}
	if cfg.DefaultRuntime == "" {
		cfg.DefaultRuntime = loopRuntime
	}
	if cfg.KillGrace == 0 {
		cfg.KillGrace = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		cfg: cfg, runtimes: map[string]runtime.Runtime{}, units: map[holdfast.SessionID]*unit{}, leaving: make(chan struct{}),
		started: make(chan struct{}), bells: bells{expiry: make(chan struct{}, 1)},
		conversations: conversation.NewKept(keptConversations, keptBytes),
	}
	e.boxes = place.New(cfg.Boxes, sessions{e})
	e.direct = direct.New(byHand{e}, cfg.MaxCopy)
	for _, r := range cfg.Runtimes {
		e.runtimes[r.Name()] = r
	}
	if len(e.runtimes) == 0 || cfg.Store == nil || cfg.Policy == nil || cfg.Agents == nil || cfg.Journal == nil || cfg.Clock == nil || cfg.Rand == nil || cfg.CheckModel == nil || cfg.Boxes.Files == nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "engine", "incomplete configuration")
	}
	e.agents.policies = permit.New(cfg.Policy, layered{cfg.Store, e})
	var err error
	e.network, err = newNetwork(cfg.Network)
	return e, err
}

// Start continues what a former server left open: resumes cut off become
// errors, running turns go on from their log, queued ones follow. ctx is the
// engine's life; Close ends it in order. stop ends the boxes that were left
// instead of adopting them.
func (e *Engine) Start(ctx context.Context, stop bool) error {
	e.base, e.letGo = context.WithCancel(ctx)
	var err error
	if e.judging, err = judging.Open(filepath.Join(e.cfg.Boxes.Dir, "judging")); err != nil {
		return err
	}
	if err := e.openBoots(ctx); err != nil {
		return err
	}
	if err := e.boxes.Start(e.base, stop); err != nil {
		return err
	}
	// First, so that a turn that goes on finds its question ended.
	if err := e.expireDue(ctx); err != nil {
		return err
	}
	if err := e.recover(ctx); err != nil {
		return err
	}
	e.crews.rest.run(e.watchdog)
	e.crews.rest.run(e.expirer)
	e.crews.rest.run(e.forgetter)
	close(e.started)
	return nil
}

func (e *Engine) recover(ctx context.Context) error {
	cut, err := e.cfg.Store.Starting(ctx)
	if err != nil {
		return err
	}
	for _, id := range cut {
		c := journal.NewChange(id)
		c.Status = []holdfast.Status{holdfast.StatusError}
		reason := "the server stopped while the session was being resumed"
		c.Set = &journal.RowPatch{Error: &reason}
		c.Events = []journal.Draft{{Type: holdfast.EventSessionError, Data: holdfast.Failure{
			Kind: holdfast.KindUnavailable, Message: reason, Hint: "holdfast session resume " + string(id),
		}}}
		if _, err := e.cfg.Journal.Commit(ctx, c); err != nil {
			return err
		}
	}
	open, err := e.cfg.Store.OpenTurns(ctx, "")
	if err != nil {
		return err
	}
	bySession := map[holdfast.SessionID][]journal.TurnRow{}
	var order []holdfast.SessionID
	for _, t := range open {
		if bySession[t.Session] == nil {
			order = append(order, t.Session)
		}
		bySession[t.Session] = append(bySession[t.Session], t)
	}
	for _, id := range order {
		if err := e.reopen(ctx, id, bySession[id]); err != nil {
			return err
		}
	}
	return nil
}

// reopen takes up a session's open turns after a restart.
func (e *Engine) reopen(ctx context.Context, id holdfast.SessionID, open []journal.TurnRow) error {
	u := e.lock(id)
	defer e.unlock(u)
	row, err := e.cfg.Store.Row(ctx, id)
	if err != nil {
		return err
	}
	for _, t := range open {
		if t.Status == holdfast.TurnRunning {
			e.launch(u, row, turn{id: t.ID, number: t.Number, messageSeq: t.MessageSeq, startedAt: startOf(t, e.cfg.Clock()), again: true})
		} else {
			u.queued++
		}
	}
	return e.next(ctx, u)
}

func startOf(t journal.TurnRow, now time.Time) time.Time {
	if t.StartedAt != nil {
		return *t.StartedAt
	}
	return now
}

// Drain refuses new turns and waits until none runs, nor any hook that follows one, or
// until ctx ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.leave(false)
	if err := e.crews.turns.wait(ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "drain", "turns still run: %w", err)
	}
	if err := e.crews.hooks.wait(ctx); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "drain", "hooks still run: %w", err)
	}
	return nil
}

func (e *Engine) leave(detach bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.drain {
		close(e.leaving)
	}
	e.drain = true
	e.detach = e.detach || detach
}

// Close ends the engine. Turns that still run are let go exactly as a crash
// would: nothing more is recorded of them, and the next Start continues them.
// With stop the boxes end too. A runtime that does not return before ctx ends is
// unavailable; it can record nothing any more.
func (e *Engine) Close(ctx context.Context, stop bool) error {
	e.leave(true)
	e.crews.turns.close()
	e.crews.hooks.close()
	e.crews.rest.close()
	// Pipes break before turns are cancelled: so no runtime can end in its box
	// what the next start will take up.
	first := e.boxes.Close(ctx, stop)
	if e.letGo != nil {
		e.letGo()
	}
	for _, c := range []*crew{&e.crews.turns, &e.crews.hooks, &e.crews.rest} {
		if err := c.wait(ctx); err != nil && first == nil {
			first = holdfast.Errorf(holdfast.KindUnavailable, "close", "a turn does not end: %w", err)
		}
	}
	if stop && first == nil {
		e.endBoot(ctx)
	}
	// The end is clean only if every judgement has finished.
	if err := e.judging.Close(first == nil); err != nil && first == nil {
		first = holdfast.Errorf(holdfast.KindUnavailable, "close", "%w", err)
	}
	return first
}

// Health is what /healthz answers.
func (e *Engine) Health(context.Context) holdfast.Health {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, u := range e.units {
		if u.busy.Load() {
			n++
		}
	}
	h := holdfast.Health{Status: "ok", RunningTurns: n}
	if e.drain {
		h.Status = "draining"
	}
	return h
}

func (e *Engine) draining() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drain {
		return holdfast.Errorf(holdfast.KindUnavailable, "turn", "the server is shutting down").
			WithHint("retry when it is back: nothing was recorded")
	}
	return nil
}

// detached says that the engine has let go of its turns.
func (e *Engine) detached() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.detach || e.base != nil && e.base.Err() != nil
}

func leftToNextStart(op string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the server is shutting down: the turn goes on at its next start").
		WithHint("retry when it is back")
}

func (e *Engine) uuid() (string, error) { return holdfast.NewUUID(e.cfg.Clock(), e.cfg.Rand) }
