package pool

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// The reasons for stopping a box that starts again in another shape: its path rules changed after its walls were
// built, or its limits or other settings changed after its start.
const (
	WallsChanged = "the path rules changed: the box starts again with their walls"
	SpecChanged  = "the limits or other settings of the box changed: it starts again with them"
)

// wallsBroken is the reason for stopping a box that has lost one of its walls.
const wallsBroken = "a rename on the host removed a wall of the box: the box starts again with all walls"

// shape is what a box was started with: the hash of its walls, the tree that it can read, and the hash of its spec
// without walls, empty if not known.
type shape struct{ walls, tree, spec string }

func shapeOf(s sandbox.Spec) shape { return shape{s.Walls.Hash(), s.Tree, s.Hash()} }

func madeAs(i sandbox.Info) shape { return shape{i.Walls, i.Tree, i.Spec} }

// drift says whether a running box differs from the wanted shape in its walls, and in the rest of its spec. A box
// that lost a wall, or has another tree, differs in walls.
type drift struct{ walls, spec bool }

// fits reports whether the box can be claimed as it is: it is ready, has the wanted walls and has the wanted
// settings. Other settings are accepted while somebody else has claimed the box. The lock is held, op need not be.
func (e *entry) fits(want shape) bool {
	return e.box.ready() && e.box.walled(want) && (e.box.made.spec == want.spec || e.holds > 0)
}

// rebuild stops a running box that differs from the wanted shape, so that it can start again. It does not stop a box
// that is claimed or runs a call. A box that differs only in its settings goes on while any process runs in it, so
// that nothing ends for their sake. left says in what a box that goes on differs. The box's lock op is held.
func (e *entry) rebuild(ctx context.Context, want shape) (ended bool, left drift, err error) {
	l := &e.box
	l.mu.Lock()
	conn, held, moving, was := l.conn, e.holds > 0, l.moving, l.made
	left = drift{walls: !l.walled(want), spec: l.made.spec != want.spec && !held}
	if left != (drift{}) && !held {
		l.moving = true // prevents claims until rebuild returns
	}
	l.mu.Unlock()
	if left == (drift{}) || held {
		return false, left, nil
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.moving = moving
	}()
	if l.working(ctx, conn) || !left.walls && !alone(ctx, l, conn) {
		return false, left, nil
	}
	reason := WallsChanged
	switch {
	case !left.walls, was.tree != want.tree:
		reason = SpecChanged
	case was.walls == want.walls:
		reason = wallsBroken
	}
	return true, drift{}, l.stop(ctx, holdfast.BoxEnded{Reason: reason}, StopGrace)
}

// alone reports whether no process runs in the box, apart from idle agents.
func alone(ctx context.Context, l *life, conn *sandbox.Box) bool {
	if conn == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	list, err := conn.Processes(ctx)
	if err != nil {
		return false
	}
	resting := l.backend.agents(ctx, l.id)
	return !slices.ContainsFunc(list, func(p wire.Process) bool { return p.State != "Z" && !slices.Contains(resting, p.Call) })
}
