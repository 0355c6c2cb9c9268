// Package snapshot keeps copies of the files of sessions, and puts them back.
//
// The app builds one Snapshots; the engine calls it through an interface of its own. The package imports the journal,
// and stores trees with pack and tree. Invariant (I-42, I-43): an event snapshot.taken is in the log only if every byte
// of its files is on the disk; nothing uses the files of a scope before an interrupted replacement of them is finished.
package snapshot

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/ignore"
	"github.com/holdfast-run/holdfast/internal/snapshot/later"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/recall"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Files describes the trees of a session's scope on this machine.
type Files struct {
	// Scope is the id of the box whose files these are.
	Scope holdfast.BoxID
	// Dir contains the trees workspace and home, and state that the scans keep.
	Dir string
	// Workspace is the path of the tree workspace; "" stands for Dir/workspace.
	Workspace string
	// Borrowed is true if the workspace is a directory that is not the session's alone, such as a directory of the user's
	// own. This package never replaces it, removes it or gives it other owners. Only a rewind with files writes into it.
	Borrowed bool
	// Same returns an error if an open directory is not the session's borrowed workspace; nil accepts any directory.
	Same func(top rooted.Entry) error
	// Owners are the users of the box. Lent is the user who owns the agent's files in a borrowed workspace. Had is true if
	// the scope has or had a workspace.
	Owners tree.Owners
	Lent   tree.User
	Had    bool
}

// Boxes is what Snapshots needs to know of boxes. Safe for concurrent use.
type Boxes interface {
	// Files returns the trees of a session.
	Files(ctx context.Context, row journal.Row) (Files, error)
	// Alive reports whether processes that can write to the trees may be alive.
	Alive(ctx context.Context, row journal.Row) bool
	// Still stops the processes of the box, if that is possible, runs fn, and lets them go on. The context of fn ends
	// after most. Still prepares the stop at once, and stops the processes when ready is closed. frozen reports whether no
	// process ran during fn.
	Still(ctx context.Context, row journal.Row, most time.Duration, ready <-chan struct{}, fn func(context.Context) error) (frozen bool, err error)
	// Between runs work in the background while no turn of the scope runs (see branch.Sessions).
	Between(id holdfast.SessionID, work func(context.Context, journal.Row)) (done <-chan struct{})
}

// Store reads checkpoints. The journal's changes write them.
type Store interface {
	Checkpoint(ctx context.Context, session holdfast.SessionID, id holdfast.CheckpointID) (journal.Checkpoint, error)
	Checkpoints(ctx context.Context, session holdfast.SessionID, before journal.Place, limit int) ([]journal.Checkpoint, error)
	Within(ctx context.Context, session holdfast.SessionID, branch []journal.Span) (journal.Checkpoint, bool, error)
	Dropped(ctx context.Context, session holdfast.SessionID, branch []journal.Span, after int64) (bool, error)
	Newest(ctx context.Context, scope holdfast.BoxID) (journal.Checkpoint, bool, error)
	Packs(ctx context.Context, numbers []int64) ([]journal.Pack, error)
	RestoreOf(ctx context.Context, scope holdfast.BoxID) (journal.Restore, bool, error)
	// Relisted returns a number that rises when anything but a commit removes checkpoints or changes their lists of packs.
	Relisted() int64
}

// Sessions reads sessions and their turns.
type Sessions interface {
	// Row and Turn return not_found for an unknown session or turn. Rows returns a page of the sessions of a query.
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	Rows(ctx context.Context, q journal.Query) (journal.Page, error)
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	// Turns returns the turns of a session with numbers above after, in order, at most limit.
	Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]journal.TurnRow, error)
}

// Config configures Snapshots. All fields but At, Exclude, Ignored and Largest must be set.
type Config struct {
	Packs    *pack.Store
	Store    Store
	Sessions Sessions
	Boxes    Boxes
	Journal  *journal.Journal
	// Branch returns the spans of a session's log that its conversation consisted of at an event.
	Branch func(ctx context.Context, id holdfast.SessionID, seq int64) ([]journal.Span, error)
	// LastCut returns when the machine last lost power, and whether people worked in the session's box shortly
	// before; the zero time if it never did.
	LastCut func(id holdfast.SessionID) (at time.Time, direct bool)
	// Purge drops the checkpoints of a session and what only they need from the disk. After conflict it can be repeated.
	Purge func(ctx context.Context, id holdfast.SessionID) error
	// Walls returns the path rules of a session's box as they are now.
	Walls func(ctx context.Context, row journal.Row) (wire.Walls, error)
	// Taken is called after each snapshot that was recorded.
	Taken func(id holdfast.SessionID, taken holdfast.SnapshotTaken)
	// Exclude are patterns of paths of workspaces that snapshots leave out, with everything below. A pattern without a
	// slash matches a name at every depth.
	Exclude []string
	// If Ignored is true, checkpoints of borrowed workspaces have the paths that git ignores, too.
	Ignored bool
	// Largest is how large a borrowed workspace may be to have checkpoints, not counting what they leave out. The zero
	// value stands for 200,000 files and directories of 2 GiB together.
	Largest Size
	NewID   func() (string, error)
	Clock   func() time.Time
	Log     *slog.Logger
	// At is called at named points, for crash tests only.
	At func(session holdfast.SessionID, point string)
}

// Snapshots takes and restores snapshots of the files of all sessions. Safe for concurrent use: for each scope one
// caller at a time reads or replaces the files.
type Snapshots struct {
	Points
	exclude  func(path string) bool
	memories recall.Memories[*scope]

	// into is held during a rewind of the files of a borrowed workspace: several sessions may have one directory.
	into sync.Mutex

	mu     sync.Mutex
	scopes map[holdfast.BoxID]*scope
	later  *later.Snapshots
}

// Points reads the checkpoints of sessions and the trees that they name. Safe for concurrent use.
type Points struct{ cfg Config }

// scope is what the server knows of a scope's files since its start.
type scope struct {
	// files is held while the files are read or replaced.
	files sync.Mutex
	// ready is true once Ready has succeeded. clean is true if the files were those of a checkpoint at the last look at
	// them. base is the checkpoint whose files are there, unless that is the scope's newest. The lock files guards them.
	ready, clean bool
	base         *journal.Checkpoint
	// newest is the scope's newest checkpoint, packs are those that contain its files. Both must be read again if newest
	// is nil (after a rewind or the removal of a pack), or if Store.Relisted returns another number than relisted.
	newest   *journal.Checkpoint
	packs    pack.Set
	relisted int64
	// told is the value that newest had when Found last looked for changes and succeeded.
	told *journal.Checkpoint
	// users is the number of callers that use this scope now; Snapshots.mu guards it.
	users int
}

// New returns the Snapshots of a server. It fails with invalid if a pattern of Exclude cannot be read.
func New(cfg Config) (*Snapshots, error) {
	if cfg.At == nil {
		cfg.At = func(holdfast.SessionID, string) {}
	}
	if cfg.Largest == (Size{}) {
		cfg.Largest = Size{Entries: 200_000, Bytes: 2 << 30}
	}
	exclude, err := ignore.Patterns(cfg.Exclude)
	s := &Snapshots{Points: Points{cfg}, exclude: exclude, scopes: map[holdfast.BoxID]*scope{}}
	s.later = later.New(func(id holdfast.SessionID, work func(context.Context, journal.Row)) <-chan struct{} {
		return cfg.Boxes.Between(id, work)
	}, func(ctx context.Context, row journal.Row, reason holdfast.CheckpointReason) {
		outside(ctx, s, row, reason, reason == holdfast.CheckpointDirect)
	})
	return s, err
}

// Close closes the store of packs. The caller calls it after the last snapshot.
func (p *Points) Close() error { return p.cfg.Packs.Close() }

// lock returns the scope with an id. No other caller may read or replace the scope's files until unlock is called.
func (s *Snapshots) lock(id holdfast.BoxID) (sc *scope, unlock func()) {
	s.mu.Lock()
	if sc = s.scopes[id]; sc == nil {
		sc = &scope{}
		s.scopes[id] = sc
	}
	sc.users++
	s.mu.Unlock()
	sc.files.Lock()
	return sc, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sc.files.Unlock()
		if sc.users--; sc.users == 0 && !sc.ready {
			s.memories.Put(sc, nil)
			delete(s.scopes, id)
		}
	}
}
