package place

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// Shared gives each session a box of its own, as Private does, and the sessions of a workspace its files. Home and
// state stay in the session's own directory.
type Shared struct {
	Private
	Workspaces *workspaces.Workspaces
	// UIDBase is that of Config.
	UIDBase uint32
}

var _ Scopes = Shared{}

// Of implements Scopes.
func (s Shared) Of(id holdfast.SessionID) Scope {
	sc := s.Private.Of(id)
	w, ok := s.Workspaces.Of(id)
	if !ok {
		return sc
	}
	sc.Tree, sc.Borrowed = s.Workspaces.Tree(w), w.Dir != ""
	switch {
	case s.UIDBase == 0:
	case sc.Borrowed:
		sc.ToolUID, sc.ToolGID = w.UID, w.GID
	default:
		sc.ToolUID = WorkspaceUID(s.UIDBase, w.Number)
		sc.ToolGID = sc.ToolUID
	}
	return sc
}

// Intact implements Scopes.
func (s Shared) Intact(id holdfast.SessionID) error {
	if w, ok := s.Workspaces.Of(id); ok {
		return s.Workspaces.Intact(w)
	}
	return nil
}
