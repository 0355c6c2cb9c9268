package body

import (
	"cmp"

	"github.com/holdfast-run/holdfast"
)

// CreateSession is the body of a request for a session. Older clients call the field workspace_id by another name.
type CreateSession struct {
	holdfast.CreateSession
	WorkspaceID string `json:"workspaceId,omitempty" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"Another name of workspace_id."`
}

// Request returns the request; invalid if it names two workspaces.
func (c CreateSession) Request() (holdfast.CreateSession, error) {
	req := c.CreateSession
	if c.WorkspaceID != "" && req.Workspace != "" && c.WorkspaceID != req.Workspace {
		return req, holdfast.Errorf(holdfast.KindInvalid, "session.create", "the request names two workspaces: workspace_id is %s and workspaceId is %s", holdfast.Quote(req.Workspace), holdfast.Quote(c.WorkspaceID)).
			WithHint("name one workspace, with workspace_id")
	}
	req.Workspace = cmp.Or(req.Workspace, c.WorkspaceID)
	return req, nil
}
