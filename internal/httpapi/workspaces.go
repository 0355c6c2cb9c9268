package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// WorkspaceInput names the workspace of a request.
type WorkspaceInput struct {
	ID string `path:"workspace" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"The workspace's slug." example:"my-project"`
}

func (in WorkspaceInput) named() (holdfast.Slug, error) { return holdfast.Parse[holdfast.Slug](in.ID) }

type createWorkspaceInput struct {
	Body holdfast.CreateWorkspace
}

type updateWorkspaceInput struct {
	WorkspaceInput
	Body holdfast.UpdateWorkspace
}

type deleteWorkspaceInput struct {
	WorkspaceInput
	Force  bool `query:"force" doc:"End running turns of its sessions first; without it they are a conflict."`
	DryRun bool `query:"dry_run" doc:"Answer with the plan and change nothing."`
}

type workspaceOutput struct {
	Body struct {
		Workspace holdfast.Workspace `json:"workspace"`
	}
}

type workspacesOutput struct {
	Body struct {
		Workspaces []holdfast.Workspace `json:"workspaces"`
	}
}

type trashedWorkspacesOutput struct {
	Body struct {
		Workspaces []holdfast.DeletedWorkspace `json:"workspaces"`
	}
}

func (a *API) workspaceRoutes() {
	const tag, all, one, trash = "workspaces", "/v1/workspaces", "/v1/workspaces/{workspace}", "/v1/trash/workspaces"
	create := route(http.MethodPost, all, "create-workspace", tag, "Make a workspace: files that several sessions work on")
	create.DefaultStatus = http.StatusCreated
	handle(a, create, a.createWorkspace)
	handle(a, route(http.MethodGet, all, "list-workspaces", tag, "List the workspaces, by slug"), a.listWorkspaces)
	handleOne(a, route(http.MethodGet, one, "get-workspace", tag, "Show a workspace"), a.getWorkspace)
	handleOne(a, route(http.MethodPatch, one, "update-workspace", tag, "Change what the new sessions of a workspace get"), a.updateWorkspace)
	handle(a, route(http.MethodGet, trash, "list-trashed-workspaces", tag, "List the deleted workspaces whose files are in the trash"), a.listTrashed)
	handle(a, route(http.MethodDelete, trash, "empty-workspace-trash", tag, "Remove the files of all deleted workspaces for good"), a.emptyTrashed)
	handleOne(a, route(http.MethodDelete, one, "delete-workspace", tag, "Delete a workspace; its sessions stay, with copies of its files"), a.deleteWorkspace)
}

func workspaceAnswer(w holdfast.Workspace, err error) (*workspaceOutput, error) {
	out := &workspaceOutput{}
	out.Body.Workspace = w
	return out, err
}

func (a *API) createWorkspace(ctx context.Context, in *createWorkspaceInput) (*workspaceOutput, error) {
	return workspaceAnswer(a.cfg.Workspaces.Create(ctx, in.Body))
}

func (a *API) listWorkspaces(ctx context.Context, _ *struct{}) (*workspacesOutput, error) {
	list, err := a.cfg.Workspaces.List(ctx)
	out := &workspacesOutput{}
	out.Body.Workspaces = some(list)
	return out, err
}

func (a *API) getWorkspace(ctx context.Context, id holdfast.Slug, _ *WorkspaceInput) (*workspaceOutput, error) {
	return workspaceAnswer(a.cfg.Workspaces.Get(ctx, id))
}

func (a *API) updateWorkspace(ctx context.Context, id holdfast.Slug, in *updateWorkspaceInput) (*workspaceOutput, error) {
	return workspaceAnswer(a.cfg.Workspaces.Update(ctx, id, in.Body))
}

func (a *API) deleteWorkspace(ctx context.Context, id holdfast.Slug, in *deleteWorkspaceInput) (*output[holdfast.DeletedWorkspace], error) {
	return bodyOf(a.cfg.Workspaces.Delete(ctx, id, in.Force, in.DryRun))
}

func (a *API) listTrashed(ctx context.Context, _ *struct{}) (*trashedWorkspacesOutput, error) {
	list, err := a.cfg.Workspaces.Trashed(ctx)
	out := &trashedWorkspacesOutput{}
	out.Body.Workspaces = some(list)
	return out, err
}

func (a *API) emptyTrashed(ctx context.Context, _ *struct{}) (*struct{}, error) {
	return nil, a.cfg.Workspaces.Empty(ctx, 0)
}
