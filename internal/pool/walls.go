package pool

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

// WallsChanged is the reason for stopping a box whose path rules changed after its walls were built.
const WallsChanged = "the path rules changed: the box starts again with their walls"

// wallsBroken is the reason for stopping a box that has lost one of its walls.
const wallsBroken = "a rename on the host removed a wall of the box: the box starts again with all walls"

// rebuild stops a running box that has other walls than hash or has lost one, so that it can start
// again. A box that is claimed or runs a call is not stopped, but reported as stale. op is held.
func (e *entry) rebuild(ctx context.Context, hash string) (ended, stale bool, err error) {
	l := &e.box
	l.mu.Lock()
	same, ok, conn, held, moving := l.walls == hash, l.walled(hash), l.conn, e.holds > 0, l.moving
	if !ok && !held {
		l.moving = true // prevents claims meanwhile
	}
	l.mu.Unlock()
	if ok || held {
		return false, !ok, nil
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.moving = moving
	}()
	if l.working(ctx, conn) {
		return false, true, nil
	}
	reason := WallsChanged
	if same {
		reason = wallsBroken
	}
	return true, false, l.stop(ctx, holdfast.BoxEnded{Reason: reason}, idleGrace)
}
