// Package branch moves sessions back to checkpoints, and makes new sessions that continue from them.
//
// The app builds a Branches for the API, and calls Spans. The package imports the journal and conversation; the engine,
// the snapshots and the database implement its interfaces. Invariant (HZ-13): nothing is lost by a rewind, since the
// session as it was before is a checkpoint too. The events that a fork copies are the same conversation as in the
// session that they come from, with other ids and numbers.
package branch

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Sessions is what Branches needs of the engine. Safe for concurrent use.
type Sessions interface {
	// Quiet ends the running turn of a session (if interrupt is false, it returns conflict for a running turn instead),
	// stops the session's box, and runs work while no turn of the session's scope runs or starts and the session gets no
	// box: requests for its box wait. op names the operation in errors. Quiet returns the session's row as it is after the
	// work. It returns gone for a session that has ended.
	Quiet(ctx context.Context, id holdfast.SessionID, op string, interrupt bool, work func(context.Context, journal.Row) error) (journal.Row, error)
	// Between runs work in the background while no turn of the session's scope runs or starts. The returned channel is
	// closed when work has ended, or if the session is gone. While a turn runs (whose end takes a snapshot anyway), and
	// while the server shuts down, work does not run and the channel is nil.
	Between(id holdfast.SessionID, work func(context.Context, journal.Row)) (done <-chan struct{})
	// Working returns another session that has a running turn and shares the files of the given session; empty if there
	// is none.
	Working(id holdfast.SessionID) holdfast.SessionID
	// Rested waits, for a limited time, until the snapshots of the session's ended turns are taken or have failed.
	Rested(ctx context.Context, id holdfast.SessionID)
	// Conversation calls use with the conversation of a session, and returns the error of use.
	Conversation(ctx context.Context, id holdfast.SessionID, use func(*conversation.Conversation) error) error
	// Choose returns the row and the first events of a new session that is forked from the session of the row from.
	Choose(ctx context.Context, from journal.Row, req holdfast.ForkSession) (journal.Row, []journal.Draft, error)
}

// Snapshots are the copies of the files of sessions. Safe for concurrent use.
type Snapshots interface {
	// Find returns the checkpoint with an id, or the one at the end of the turn with that id; not_found for an unknown id,
	// and conflict if the snapshot of that turn failed. files is the stored checkpoint that contains the files of cp; its
	// id is empty if there were no files. Here returns the newest checkpoint of the session's branch in the same form; if
	// the branch has none, the id of cp is "".
	Find(ctx context.Context, row journal.Row, id holdfast.CheckpointID) (cp holdfast.Checkpoint, files journal.Checkpoint, err error)
	Here(ctx context.Context, row journal.Row) (cp holdfast.Checkpoint, files journal.Checkpoint, err error)
	// Stored returns a stored checkpoint by its own id; not_found for an unknown one.
	Stored(ctx context.Context, id holdfast.SessionID, cp holdfast.CheckpointID) (journal.Checkpoint, error)
	// List returns a page of the checkpoints, newest first.
	List(ctx context.Context, row journal.Row, after string, limit int) (holdfast.CheckpointPage, error)
	// Take takes a snapshot of the files as they are, if they changed. If it fails, it records an event and returns
	// nothing. No turn of the session's scope runs.
	Take(ctx context.Context, row journal.Row, reason holdfast.CheckpointReason)
	// Rewind stores the present files as a checkpoint, commits change, which gets the id of that checkpoint, and replaces
	// the present files by those of a stored checkpoint. If files is nil, the present files stay; if its id is empty, they
	// are removed. The box does not run. If the server ends after the commit, the next server finishes the replacement.
	Rewind(ctx context.Context, row journal.Row, files *journal.Checkpoint, change func(c *journal.Change, kept holdfast.CheckpointID)) error
	// Borrowed reports whether the workspace of a session is a directory that is not the session's alone.
	Borrowed(ctx context.Context, row journal.Row) (bool, error)
	// Keep takes a snapshot of the present files of a session, which somebody else may have changed too, and returns the
	// checkpoint that has them; conflict if the workspace has no checkpoints now. No turn of the session's scope runs.
	Keep(ctx context.Context, row journal.Row) (holdfast.CheckpointID, error)
	// Plan returns what a rewind to a stored checkpoint would change in the workspace. No turn of the session's scope runs.
	Plan(ctx context.Context, row journal.Row, to journal.Checkpoint) (holdfast.RewindPlan, error)
}

// Store reads sessions. Row and Turn return not_found for an unknown session or turn.
type Store interface {
	Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (journal.TurnRow, error)
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	// KeyRef returns the id of the session that was made by the request with an idempotency key: "" for a new key. It
	// returns conflict for a key that was used with another request.
	KeyRef(ctx context.Context, k journal.Key) (string, error)
}

// Config configures Branches. All fields must be set.
type Config struct {
	Sessions  Sessions
	Snapshots Snapshots
	Trees     Trees
	Store     Store
	Journal   *journal.Journal
	// Scope returns the box id of the scope of a session. After Hold, the key that encrypts environments is not replaced
	// until release is called.
	Scope func(holdfast.SessionID) holdfast.BoxID
	Hold  func() (release func())
	// Unpack extracts a tar archive into the files of a session through its box. After an error the files are as before.
	Unpack func(ctx context.Context, id holdfast.SessionID, to holdfast.CopyTo, tar io.Reader) (holdfast.Copied, error)
	NewID  func() (string, error)
	Clock  func() time.Time
}

// Branches works with the checkpoints of all sessions. Safe for concurrent use.
type Branches struct{ cfg Config }

// New returns the Branches of a server.
func New(cfg Config) *Branches { return &Branches{cfg} }

// settled waits for the snapshots of a session's ended turns (see Sessions.Rested), and returns the session's row.
func (b *Branches) settled(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	b.cfg.Sessions.Rested(ctx, id)
	return b.cfg.Store.Row(ctx, id)
}

// List returns a page of the checkpoints of a session, newest first. limit defaults to 50 and is at most
// 1000; cursor is the Next of the page before.
func (b *Branches) List(ctx context.Context, id holdfast.SessionID, cursor string, limit int) (holdfast.CheckpointPage, error) {
	row, err := b.settled(ctx, id)
	if err != nil {
		return holdfast.CheckpointPage{}, err
	}
	return b.cfg.Snapshots.List(ctx, row, cursor, limit)
}

// Spans returns the spans of a session's log that the session's conversation consisted of at the event seq. completed
// is the number of turns that were completed then, if the event is the end of a turn.
func Spans(ctx context.Context, s Sessions, id holdfast.SessionID, seq int64) (spans []journal.Span, completed int64, err error) {
	err = s.Conversation(ctx, id, func(c *conversation.Conversation) error {
		completed, _ = c.CompletedAt(seq)
		for _, s := range c.Branch(seq) {
			spans = append(spans, journal.Span(s))
		}
		return nil
	})
	return spans, completed, err
}

// head returns the number of the event after which the conversation of a checkpoint continues: the end of the
// checkpoint's newest turn; 0 if the checkpoint is from before the first turn.
func (b *Branches) head(ctx context.Context, id holdfast.SessionID, cp holdfast.Checkpoint) (int64, error) {
	if cp.Turn == "" {
		return 0, nil
	}
	t, err := b.cfg.Store.Turn(ctx, id, cp.Turn)
	return t.EndSeq, err
}
