package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

// workspacePath returns the path of a workspace's routes.
func workspacePath(id holdfast.Slug) string { return "/v1/workspaces/" + url.PathEscape(string(id)) }

// sentWorkspace is a workspace as a server sends it. Older servers name the field trust_level, not default_trust_level.
type sentWorkspace struct {
	holdfast.Workspace
	OldTrust string `json:"trust_level"`
}

func (s sentWorkspace) read() (holdfast.Workspace, error) {
	w := s.Workspace
	old := cmp.Or(string(w.DefaultTrust), s.OldTrust)
	if old == "" {
		return w, nil
	}
	var err error
	w.DefaultTrust, err = holdfast.Parse[holdfast.Trust](old)
	return w, err
}

// workspace sends a request that is answered with one workspace.
func (c *Client) workspace(ctx context.Context, r call) (holdfast.Workspace, error) {
	got, err := askFor[sentWorkspace](ctx, c, r, "workspace")
	if err != nil {
		return holdfast.Workspace{}, err
	}
	return got.read()
}

// CreateWorkspace makes a workspace; conflict if its id or its directory is taken.
func (c *Client) CreateWorkspace(ctx context.Context, req holdfast.CreateWorkspace) (holdfast.Workspace, error) {
	return c.workspace(ctx, call{method: http.MethodPost, path: "/v1/workspaces", body: req})
}

// Workspaces lists the workspaces, sorted by id.
func (c *Client) Workspaces(ctx context.Context) ([]holdfast.Workspace, error) {
	got, err := askFor[[]sentWorkspace](ctx, c, call{method: http.MethodGet, path: "/v1/workspaces"}, "workspaces")
	if err != nil {
		return nil, err
	}
	list := make([]holdfast.Workspace, len(got))
	for i, one := range got {
		if list[i], err = one.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Workspace returns one workspace; not_found if no workspace has that id.
func (c *Client) Workspace(ctx context.Context, id holdfast.Slug) (holdfast.Workspace, error) {
	return c.workspace(ctx, call{method: http.MethodGet, path: workspacePath(id)})
}

// UpdateWorkspace changes those settings of a workspace that are set in req; conflict if req.Revision is set and is
// not the workspace's current revision.
func (c *Client) UpdateWorkspace(ctx context.Context, id holdfast.Slug, req holdfast.UpdateWorkspace) (holdfast.Workspace, error) {
	return c.workspace(ctx, call{method: http.MethodPatch, path: workspacePath(id), body: req})
}

// DeleteWorkspace deletes a workspace, or with dryRun returns what that would do. Its sessions stay, with copies of its
// files; a directory of the user's own stays as it is. It fails with conflict if a turn runs in one of the sessions and
// force is false.
func (c *Client) DeleteWorkspace(ctx context.Context, id holdfast.Slug, force, dryRun bool) (holdfast.DeletedWorkspace, error) {
	q := url.Values{}
	setTrue(q, "force", force)
	setTrue(q, "dry_run", dryRun)
	return ask[holdfast.DeletedWorkspace](ctx, c, call{method: http.MethodDelete, path: workspacePath(id), query: q})
}

// TrashedWorkspaces lists the deleted workspaces whose files are still in the trash.
func (c *Client) TrashedWorkspaces(ctx context.Context) ([]holdfast.DeletedWorkspace, error) {
	return askFor[[]holdfast.DeletedWorkspace](ctx, c, call{method: http.MethodGet, path: "/v1/trash/workspaces"}, "workspaces")
}

// EmptyWorkspaceTrash removes the files of all deleted workspaces for good.
func (c *Client) EmptyWorkspaceTrash(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/v1/trash/workspaces"}, nil)
}
