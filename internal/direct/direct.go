// Package direct carries out what people and programs do in a session's box besides its turns:
// commands and terminals, files, whole trees, the import of a session's first files and the diff
// against them.
//
// The engine owns the one Work of a server, and implements Sessions, which starts and lends the boxes.
// Invariant (I-6): work reaches the files of a session only through its box.
package direct

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Sessions is the access of Work to sessions; the engine implements it. Safe for concurrent use.
type Sessions interface {
	// InBox runs work with the session's box; a paused or failed session is resumed first. If the
	// box ended before it received the work, work runs once more, in the next box. InBox fails with
	// not_found for an unknown session, with gone for one that has ended, and with conflict for a
	// paused or failed one whose workspace is being deleted.
	InBox(ctx context.Context, id holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error
	// Command records that a command runs in the session's box until done is called, because a
	// power cut may take files that it wrote.
	Command(ctx context.Context, id holdfast.SessionID) (done func(), err error)
	// Call returns a new call id.
	Call() (holdfast.CallID, error)
	// Session returns a session, even one that has ended.
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	// Imported records durably that the session has its first files, and the commit to compare
	// with; start is empty if there is none.
	Imported(ctx context.Context, id holdfast.SessionID, files holdfast.Copied, start string) (holdfast.Session, error)
}

// Work runs commands and file operations in the boxes of sessions, outside of turns. Safe for concurrent use.
type Work struct {
	sessions Sessions
	maxCopy  int64

	mu sync.Mutex
	// importing holds the sessions that are receiving their first files.
	importing map[holdfast.SessionID]bool
}

// New makes the Work of a server. maxCopy is the most bytes of a tree that is copied into a box;
// 0 means no limit.
func New(sessions Sessions, maxCopy int64) *Work {
	return &Work{sessions: sessions, maxCopy: maxCopy, importing: map[holdfast.SessionID]bool{}}
}

// call returns a call with a new id. The caller lets the box forget the call when the work is done, because
// nobody asks for the outcome later.
func (w *Work) call() (sandbox.Call, error) {
	id, err := w.sessions.Call()
	return sandbox.Call{ID: id}, err
}

// look does what InBox does, for work that changes nothing in the box: if the box turns out to be
// dead, the work is repeated in the next box.
func (w *Work) look(ctx context.Context, id holdfast.SessionID, work func(context.Context, *sandbox.Box) error) error {
	var dead <-chan struct{}
	err := w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		dead = box.Done()
		return work(ctx, box)
	})
	if dead == nil || !holdfast.IsKind(err, holdfast.KindUnavailable) {
		return err
	}
	// The connection to the box may report a moment after the call has failed that it is broken.
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
