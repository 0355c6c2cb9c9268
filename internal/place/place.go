// Package place knows where sessions have their boxes: which driver runs them, which sessions
// share one, which trees and host ids belong to it, what it is given when it first starts, and
// what becomes of it when its last session has ended.
//
// The engine owns the one Boxes of a server and says, as Sessions, what only it knows of them. Invariant (I-10, I-15, HZ-22): a session gets a box of its own scope and trust level
// or an error, never another place; in a box that several share it touches only what is its
// own.
package place

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver is the pool of a driver's boxes, and the trust levels of the sessions that it serves.
type Driver struct {
	Pool   *pool.Pool
	Serves []holdfast.Trust
}

// Config is what the boxes of a server share. Dir and Files must be set.
type Config struct {
	// Dir is the directory of the sessions.
	Dir string
	// Files reaches the trees of scopes.
	Files Files
	// Drivers have the boxes; of those that serve a trust level the first one is used.
	Drivers []Driver
	// Scopes says which sessions share a box; nil: none do.
	Scopes Scopes

	Limits      sandbox.Limits
	LimitsMode  sandbox.LimitsMode
	Landlock    sandbox.LandlockMode
	OrphanAfter time.Duration
	SpoolBytes  int64
	// UIDBase is where the host uids of boxes begin; each session has two. 0: the server is
	// not root and there is nothing to allocate.
	UIDBase uint32
}

// MaxNumber is how many sessions of a data directory have ids for their boxes: two for each
// from Config.UIDBase on. Ready boots may have those that follow.
const MaxNumber = 1 << 29

// Sessions is what Boxes asks of sessions. Safe for concurrent use.
type Sessions interface {
	// Row is one session; not_found for none. Live is Row, but gone for one that has ended.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	Live(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Seeded makes what became of a session's files durable.
	Seeded(ctx context.Context, id holdfast.SessionID, set journal.RowPatch) error
	// Files are what a version brings into the first box of a scope, Plugin the directory
	// with what it brings for an agent CLI; empty for nothing.
	Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error)
	Plugin(ctx context.Context, row journal.Row) (string, error)
	// Prepare is called before a box starts or is claimed for a session. What it returns
	// gives the session what its processes need there.
	Prepare(row journal.Row) (enter func(context.Context, *sandbox.Box) error, err error)
	// Log reads a session's log.
	Log(ctx context.Context, id holdfast.SessionID) iter.Seq2[holdfast.Event, error]
	// Agents are the agents of a session that keep a state of their own.
	Agents(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// Hooks returns which calls are hooks' runs of the session's running turn.
	Hooks(id holdfast.SessionID) func(holdfast.CallID) bool
	// Open reports whether a turn of a session runs or waits.
	Open(ctx context.Context, id holdfast.SessionID) (bool, error)
}

// Boxes are the boxes of one server. Safe for concurrent use.
type Boxes struct {
	cfg      Config
	sessions Sessions
	claims   claims
}

// claims are those who claim boxes right now, by session. The zero value is ready.
type claims struct {
	mu sync.Mutex
	by map[holdfast.SessionID]*claimed
}

// claimed is what those who claim a session's box have in common.
type claimed struct {
	// refs is guarded by claims.mu.
	refs int
	// seed is held by whoever makes the first files of the session's scope.
	seed sync.Mutex
	// moved counts what makes boxes of the session so far unusable: its end, a change of its
	// trust.
	moved atomic.Int64
}

// New makes the boxes of a server. Nothing runs until Start.
func New(cfg Config, sessions Sessions) *Boxes {
	if cfg.Scopes == nil {
		cfg.Scopes = private{cfg.Dir}
	}
	return &Boxes{cfg: cfg, sessions: sessions}
}

// Start adopts the boxes that a former server left to sessions that live, or with stop ends
// them. ctx is the life of the pools.
func (b *Boxes) Start(ctx context.Context, stop bool) error {
	for _, d := range b.cfg.Drivers {
		if err := d.Pool.Start(ctx, stop, func(box holdfast.BoxID) bool { return b.known(ctx, box) }); err != nil {
			return err
		}
	}
	return nil
}

// Close breaks all pipes; with stop the boxes end, too.
func (b *Boxes) Close(ctx context.Context, stop bool) error {
	var first error
	for _, d := range b.cfg.Drivers {
		if err := d.Pool.Close(ctx, stop); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (c *claims) join(id holdfast.SessionID) *claimed {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.by[id]
	if own == nil {
		own = &claimed{}
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

// Moved says that a session's box so far may not be used any more. A claim that is under way
// begins again, and ends the box that it got.
func (b *Boxes) Moved(id holdfast.SessionID) {
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	if own := b.claims.by[id]; own != nil {
		own.moved.Add(1)
	}
}
