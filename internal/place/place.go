// Package place decides where sessions have their boxes: which driver runs them, which sessions share one,
// which trees and host ids belong to it, which files it gets at its first start, and how it ends when its
// last session has ended.
//
// The engine owns the one Boxes of a server, and tells it through Sessions what only the engine knows about
// sessions. Invariant (I-10, I-15, HZ-22): a session gets a box of its own scope and trust level or an error,
// never another place; in a box that several sessions share, it touches only what is its own.
package place

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/workspaces"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver is the pool of a driver's boxes, with the trust levels of the sessions that the driver serves.
type Driver struct {
	Pool   *pool.Pool
	Serves []holdfast.Trust
}

// Config holds what the boxes of a server have in common. Dir and Files must be set.
type Config struct {
	// Dir is the directory that contains the directories of the sessions.
	Dir string
	// Files accesses the trees of scopes.
	Files Files
	// Drivers are the drivers of this server. For each trust level the first one that serves it is used.
	Drivers []Driver
	// Scopes determines which sessions share a box; nil means that none do.
	Scopes Scopes

	// Ready is called before a claim that may start a session's box. If it fails, so does the claim. Nil means that
	// nothing has to be done before.
	Ready func(ctx context.Context, row journal.Row) error

	// LimitsOf returns the limits of the box of a session; sessions that share a box have the same limits. If LimitsOf
	// is nil, the default limits of the driver apply.
	LimitsOf    func(row journal.Row) (sandbox.Limits, error)
	LimitsMode  sandbox.LimitsMode
	Landlock    sandbox.LandlockMode
	OrphanAfter time.Duration
	SpoolBytes  int64
	// Log receives a line for what each sweep removes; nil discards the lines.
	Log *slog.Logger
	// UIDBase is the first host uid for boxes; each session has two uids. 0 means that the server
	// is not root and allocates none.
	UIDBase uint32
}

// MaxNumber is how many sessions of a data directory can have host ids for their boxes, MaxWorkspaces how many
// workspaces. Each has two ids: those of sessions begin at Config.UIDBase, and those of workspaces follow. The ids of
// ready boots begin at Config.UIDBase + ReadyUIDs.
const (
	MaxNumber     = 1<<29 - MaxWorkspaces
	MaxWorkspaces = workspaces.MaxNumber
	ReadyUIDs     = 2 * (MaxNumber + MaxWorkspaces)
)

// WorkspaceUID returns the host id of a workspace's tools, from base (Config.UIDBase) and its number, at least 1.
func WorkspaceUID(base uint32, number int64) uint32 { return base + 2*uint32(MaxNumber+number) - 1 }

// Sessions is what Boxes needs to know about sessions. The engine implements it. Safe for concurrent use.
type Sessions interface {
	// Row returns one session, or not_found. Live does the same, but returns gone for a session that has ended.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	Live(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Seeded durably records the patch that describes a session's files, with the events of how they were made.
	Seeded(ctx context.Context, id holdfast.SessionID, set journal.RowPatch, events ...journal.Draft) error
	// Files returns the files that an agent version brings for the first box of a scope; Plugin returns
	// the directory with the files that it brings for an agent CLI, empty if it brings none.
	Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error)
	Plugin(ctx context.Context, row journal.Row) (string, error)
	// Prepare is called before a box is started or claimed for a session. The function that it
	// returns sets up, inside the box, what the session's processes need.
	Prepare(row journal.Row) (enter func(context.Context, *sandbox.Box) error, err error)
	// Log reads a session's log.
	Log(ctx context.Context, id holdfast.SessionID) iter.Seq2[holdfast.Event, error]
	// Agents returns the agents of a session that have a state of their own.
	Agents(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// Hooks returns a function that reports which calls are runs of hooks in the session's running turn.
	Hooks(id holdfast.SessionID) func(holdfast.CallID) bool
	// Open reports whether the session has a running or queued turn. It returns false while the running turn has given its
	// box back until a person or a provider answers.
	Open(ctx context.Context, id holdfast.SessionID) (bool, error)
}

// Boxes manages the boxes of one server. Safe for concurrent use.
type Boxes struct {
	cfg      Config
	sessions Sessions
	claims   claims
	places   places
	// seeding is held while an agent's files are written into the tree of a workspace, which other sessions may have too.
	seeding sync.Mutex

	Calm Calm

	// end stops the goroutine that sweeps, ended waits for its end.
	end   context.CancelFunc
	ended sync.WaitGroup
}

// claims records the claims of boxes in progress, by session. The zero value is ready.
type claims struct {
	mu sync.Mutex
	by map[holdfast.SessionID]*claimed
}

// claimed is the state that concurrent claims of one session's box share.
type claimed struct {
	// refs is guarded by claims.mu.
	refs int
	// door has allClaims units: each claim in progress has one, and Without takes all.
	door *semaphore.Weighted
	// seed is held while the first files of the scope that this session owns are made.
	seed sync.Mutex
	// moved is incremented whenever the session's former boxes become unusable, such as at its end, at a change of its
	// trust, or when its workspace is deleted.
	moved atomic.Int64
}

// allClaims is more than the claims of one session that can be in progress at a time.
const allClaims = 1 << 40

// New makes the Boxes of a server. It starts nothing: that is for Start.
func New(cfg Config, sessions Sessions) *Boxes {
	if cfg.Scopes == nil {
		cfg.Scopes = Private{cfg.Dir}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.LimitsOf == nil {
		cfg.LimitsOf = func(journal.Row) (sandbox.Limits, error) { return sandbox.Limits{}, nil }
	}
	b := &Boxes{cfg: cfg, sessions: sessions}
	b.Calm.cfg = &b.cfg
	return b
}

// Start adopts the boxes that a former server left for sessions that still live, or if stop is true ends them. The
// pools keep the values of ctx, but do not end with it.
func (b *Boxes) Start(ctx context.Context, stop bool) error {
	for _, d := range b.cfg.Drivers {
		if err := d.Pool.Start(ctx, stop, known(ctx, b)); err != nil {
			return err
		}
	}
	ctx, b.end = context.WithCancel(context.WithoutCancel(ctx))
	b.ended.Go(func() { sweeps(ctx, b) })
	return nil
}

// Close closes the connections to all boxes; if stop is true, it also ends the boxes.
func (b *Boxes) Close(ctx context.Context, stop bool) error {
	if b.end != nil {
		b.end()
		b.ended.Wait()
	}
	var first error
	for _, d := range b.cfg.Drivers {
		if err := d.Pool.Close(ctx, stop); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Sync returns when everything that boxes have written to workspaces and homes is durable. It leaves out a workspace
// that does not exist, such as a directory that its user has removed.
func Sync(ctx context.Context, b *Boxes) error {
	trees, err := b.cfg.Scopes.Trees(ctx)
	errs := []error{err, b.cfg.Files.Sync(ctx, b.cfg.Dir)}
	for _, dir := range trees {
		if err := b.cfg.Files.Sync(ctx, dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *claims) join(id holdfast.SessionID) *claimed {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.by[id]
	if own == nil {
		own = &claimed{door: semaphore.NewWeighted(allClaims)}
		if c.by == nil {
			c.by = map[holdfast.SessionID]*claimed{}
		}
		c.by[id] = own
	}
	own.refs++
	return own
}

func (c *claims) leave(id holdfast.SessionID, own *claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own.refs--; own.refs == 0 {
		delete(c.by, id)
	}
}

// Moved records that the session's current box must not be used any more. A claim in progress
// starts again, and ends the box that it got.
func (b *Boxes) Moved(id holdfast.SessionID) {
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	if own := b.claims.by[id]; own != nil {
		own.moved.Add(1)
	}
}
