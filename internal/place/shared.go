package place

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/workspaces"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Shared gives the sessions of a workspace its files, and if Share allows it one box, in which each has a place of its
// own. Other sessions have a scope of their own, as Private gives them.
type Shared struct {
	Private
	Workspaces *workspaces.Workspaces
	// UIDBase is Config.UIDBase: the first host uid for boxes.
	UIDBase uint32
	// Share reports whether a session shares the box of its workspace. The answer stays the same while the session
	// has a box.
	Share func(id holdfast.SessionID) bool

	memo memo
}

var _ Scopes = (*Shared)(nil)

// workspaceBox and treeBox are the prefixes of the ids of boxes that the sessions of a workspace share: workspaceBox
// for sessions that see only the workspace, treeBox for sessions that also see the server's tree.
const workspaceBox, treeBox = "w-", "t-"

// WorkspaceBoxes returns the ids that boxes of a workspace's sessions can have.
func WorkspaceBoxes(id holdfast.Slug) []holdfast.BoxID {
	return []holdfast.BoxID{holdfast.BoxID(workspaceBox + id), holdfast.BoxID(treeBox + id)}
}

// Of implements Scopes.
func (s *Shared) Of(id holdfast.SessionID) Scope {
	now := workspaces.Changes(s.Workspaces)
	sc, ok := s.memo.get(id, now)
	if !ok {
		sc = s.made(id)
		s.memo.put(id, now, sc)
	}
	return sc
}

func (s *Shared) made(id holdfast.SessionID) Scope {
	sc := s.Private.Of(id)
	w, ok := s.Workspaces.Of(id)
	if !ok {
		return sc
	}
	sc.Tree, sc.Borrowed, sc.Files = s.Workspaces.Tree(w), w.Dir != "", holdfast.BoxID(workspaceBox+w.ID)
	if sc.Borrowed {
		mask := w.Mask // copy the field: the address of w.Mask would move all of w to the heap
		sc.Umask = &mask
	}
	m := s.Workspaces.Member(id)
	prefix := holdfast.Slug(workspaceBox)
	if m.HasTree() {
		sc.Around, prefix = s.Workspaces.Mounts.Root(), treeBox
	}
	if sc.Shared = s.Share(id); sc.Shared {
		sc.Box, sc.Dir = holdfast.BoxID(prefix+w.ID), s.Workspaces.BoxDir(w, m.Mount)
	}
	if s.UIDBase == 0 {
		return sc
	}
	tools := WorkspaceUID(s.UIDBase, w.Number)
	if sc.Shared {
		sc.BoxdUID = tools - 1
	}
	sc.ToolUID, sc.ToolGID = tools, tools
	switch {
	case sc.Borrowed && w.UID == 0:
		sc.RootTree = &sandbox.RootTree{Inode: w.Inode, GID: w.GID}
	case sc.Borrowed:
		sc.ToolUID, sc.ToolGID = w.UID, w.GID
	}
	return sc
}

// Members implements Scopes. While the server has no tree_root, the boxes with the server's tree have no sessions.
func (s *Shared) Members(ctx context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	slug, tree := strings.CutPrefix(string(box), treeBox)
	if !tree {
		var ok bool
		if slug, ok = strings.CutPrefix(string(box), workspaceBox); !ok {
			return s.Private.Members(ctx, box)
		}
	} else if s.Workspaces.Mounts.Root() == "" {
		return nil, nil
	}
	var ids []holdfast.SessionID
	for _, id := range s.Workspaces.Members(holdfast.Slug(slug)) {
		if s.Share(id) && s.Workspaces.Member(id).HasTree() == tree {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Boxes implements Scopes.
func (s *Shared) Boxes(id holdfast.SessionID) []holdfast.BoxID {
	w, ok := s.Workspaces.Of(id)
	if !ok {
		return s.Private.Boxes(id)
	}
	boxes := WorkspaceBoxes(w.ID)
	for _, m := range s.Workspaces.Members(w.ID) {
		if !s.Share(m) {
			boxes = append(boxes, m.Box())
		}
	}
	slices.Sort(boxes)
	return boxes
}

// Intact implements Scopes.
func (s *Shared) Intact(id holdfast.SessionID) error {
	w, ok := s.Workspaces.Of(id)
	if !ok {
		return nil
	}
	err := s.Workspaces.Intact(w)
	if err == nil && s.Workspaces.Member(id).HasTree() {
		err = s.Workspaces.Mounts.Intact(s.Workspaces.Tree(w))
	}
	return err
}

// Trees implements Scopes.
func (s *Shared) Trees(ctx context.Context) (trees []string, err error) {
	list, err := s.Workspaces.List(ctx)
	for _, w := range list {
		trees = append(trees, s.Workspaces.Tree(workspaces.Record{Workspace: w}))
	}
	return trees, err
}

// memo caches the scopes of sessions until the workspaces change, because a turn needs the scope of its session about
// twenty times. The zero value is ready. Safe for concurrent use.
type memo struct {
	mu     sync.RWMutex
	as     int64
	scopes map[holdfast.SessionID]Scope
}

// mostScopes is how many scopes a memo holds.
const mostScopes = 4096

func (m *memo) get(id holdfast.SessionID, now int64) (sc Scope, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.as == now {
		sc, ok = m.scopes[id]
	}
	return sc, ok
}

// put caches the scope of a session, which was computed when the workspaces had the change number now. It drops scopes of
// older numbers, and does nothing if the cache has those of a newer one.
func (m *memo) put(id holdfast.SessionID, now int64, sc Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scopes == nil || m.as < now || len(m.scopes) >= mostScopes {
		m.as, m.scopes = now, map[holdfast.SessionID]Scope{}
	}
	if m.as == now {
		m.scopes[id] = sc
	}
}

// places records which sessions have their place in a shared box. The zero value is ready.
type places struct {
	mu sync.Mutex
	// in holds the boot of the box in which a session has its place.
	in map[holdfast.SessionID]string
	// moving holds a channel for each session that joins or leaves a box now. It is closed when the session has done so.
	moving map[holdfast.SessionID]chan struct{}
}

// join calls do unless the session has its place in this boot of the box. It waits while the session leaves.
func (p *places) join(ctx context.Context, id holdfast.SessionID, box *sandbox.Box, do func() error) error {
	if p.has(id, box) {
		return nil
	}
	return p.alone(ctx, id, func() error {
		if p.has(id, box) {
			return nil
		}
		if err := do(); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.in == nil {
			p.in = map[holdfast.SessionID]string{}
		}
		p.in[id] = box.Boot()
		return nil
	})
}

// leave forgets the place of a session and calls do, which ends the place. It waits while the session joins: a join
// that found the old place would be recorded although the place ends.
func (p *places) leave(ctx context.Context, id holdfast.SessionID, do func() error) error {
	return p.alone(ctx, id, func() error {
		p.forget(id)
		return do()
	})
}

func (p *places) forget(id holdfast.SessionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.in, id)
}

// alone calls do, and waits before that until no other call of alone for the same session runs.
func (p *places) alone(ctx context.Context, id holdfast.SessionID, do func() error) error {
	p.mu.Lock()
	for p.moving[id] != nil {
		other := p.moving[id]
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return holdfast.Errorf(holdfast.KindUnavailable, "box", "gave up waiting until session %s has joined or left its box: %w", id, context.Cause(ctx))
		}
		p.mu.Lock()
	}
	if p.moving == nil {
		p.moving = map[holdfast.SessionID]chan struct{}{}
	}
	own := make(chan struct{})
	p.moving[id] = own
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.moving, id)
		close(own)
	}()
	return do()
}

// has reports whether the session has its place in this boot of the box.
func (p *places) has(id holdfast.SessionID, box *sandbox.Box) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in[id] == box.Boot()
}
