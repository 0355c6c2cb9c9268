// Package direct is what people and programs do in a session's box beside its turns: commands
// and terminals, files, whole trees, the import of a session's first files and the diff against
// them.
//
// The engine owns the one Work of a server, and says as Sessions who may enter a box and when.
// Invariant (I-6): work reaches the files of a session through its box and no other way.
package direct

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Sessions is what Work asks of sessions. Safe for concurrent use; unknown ids are not_found,
// sessions that have ended gone.
type Sessions interface {
	// InBox does work in the session's box; a paused or errored session is resumed first. If
	// the box ended before it received the work, it is done in the next box, once.
	InBox(ctx context.Context, id holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error
	// Command notes that a command runs in the session's box until done is called: a power
	// cut may take what it wrote.
	Command(ctx context.Context, id holdfast.SessionID) (done func(), err error)
	// Call makes a call id.
	Call() (holdfast.CallID, error)
	// Session is one session, an ended one too.
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	// Imported makes durable that the first files are there, and the commit that they are
	// compared with; empty for none.
	Imported(ctx context.Context, id holdfast.SessionID, files holdfast.Copied, start string) (holdfast.Session, error)
}

// Work does direct work. Safe for concurrent use.
type Work struct {
	sessions Sessions
	maxCopy  int64

	mu sync.Mutex
	// importing are the sessions that are receiving their first files.
	importing map[holdfast.SessionID]bool
}

// New makes the direct work of a server. maxCopy bounds the files of a tree that is copied into
// a box, in bytes; 0 is no bound.
func New(sessions Sessions, maxCopy int64) *Work {
	return &Work{sessions: sessions, maxCopy: maxCopy, importing: map[holdfast.SessionID]bool{}}
}

// call mints a call id for work whose outcome nobody asks for again: it is
// released when the work is done.
func (w *Work) call() (sandbox.Call, error) {
	id, err := w.sessions.Call()
	return sandbox.Call{ID: id}, err
}

// look is InBox for work that changes nothing: when the box turns out to be
// dead it is done again in the next one.
func (w *Work) look(ctx context.Context, id holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error {
	var dead <-chan struct{}
	err := w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		dead = box.Done()
		return work(ctx, box)
	})
	if dead == nil || !holdfast.IsKind(err, holdfast.KindUnavailable) {
		return err
	}
	// The pipe says that it is broken a moment after the call failed.
	notice := time.NewTimer(200 * time.Millisecond)
	defer notice.Stop()
	select {
	case <-dead:
		return w.sessions.InBox(ctx, id, work)
	case <-notice.C:
	case <-ctx.Done():
	}
	return err
}
