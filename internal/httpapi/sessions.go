package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
)

type sessionBody struct {
	Session holdfast.Session `json:"session"`
}

type sessionOutput struct {
	Body sessionBody
}

type createdOutput struct {
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed"`
	Body     sessionBody
}

type createInput struct {
	Key  string `header:"Idempotency-Key" doc:"Makes a repeated request answer with the first one's session."`
	Body body.CreateSession
}

type listInput struct {
	Status string `query:"status" doc:"starting, active, paused, error or ended."`
	Agent  string `query:"agent" doc:"The agent's name."`
	Tag    string `query:"tag" doc:"One of the session's tags."`
	Space  string `query:"workspace" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"The slug of the session's workspace."`
	Text   string `query:"text" doc:"Part of the title, in any case."`
	Query  string `query:"q" doc:"Words that all occur in the title or the conversation, as in search."`
	Name   string `query:"name" maxLength:"500" doc:"What a person calls it: the beginning or ending of an id, a title, or the beginning of one. The first of these that fits one session only; if none does, all that fit the first that fits any. Without a cursor."`
	Trash  bool   `query:"trash" doc:"The sessions in the trash, and no others."`
	Cursor string `query:"cursor" doc:"The next of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" doc:"The page size; 50 when absent."`
}

type agentStatesOutput struct {
	Body struct {
		Agents []holdfast.AgentState `json:"agents"`
	}
}

type updateInput struct {
	SessionInput
	Body holdfast.UpdateSession
}

type endInput struct {
	SessionInput
	Body *holdfast.EndSession
}

type deleteInput struct {
	SessionInput
	Interrupt bool `query:"interrupt" doc:"End a running turn first; without it a running turn is a conflict."`
	Purge     bool `query:"purge" doc:"Skip the trash: log and files are gone for good."`
	Body      *holdfast.EndSession
}

type resumeInput struct {
	SessionInput
	Body *holdfast.ResumeSession
}

func (a *API) sessionRoutes() {
	const tag, one = "sessions", "/v1/sessions/{id}"
	create := route(http.MethodPost, "/v1/sessions", "create-session", tag, "Create a session")
	create.DefaultStatus = http.StatusCreated
	handle(a, create, a.createSession)
	handle(a, route(http.MethodGet, "/v1/sessions", "list-sessions", tag, "List sessions, newest first"), a.listSessions)
	handleOne(a, route(http.MethodGet, one, "get-session", tag, "Show a session"), a.getSession)
	handleOne(a, route(http.MethodGet, one+"/agents", "list-session-agents", tag, "List what agents with a conversation of their own know of a session"), a.sessionAgents)
	handleOne(a, route(http.MethodPatch, one, "update-session", tag, "Change title, tags, mode, model, runtime or trust"), a.updateSession)
	handleOne(a, route(http.MethodDelete, one, "delete-session", tag, "End a session and move it to the trash; with purge, remove it for good"), a.deleteSession)
	handleOne(a, route(http.MethodPost, one+"/untrash", "untrash-session", tag, "Take a session out of the trash"), a.restoreSession)
	handleOne(a, route(http.MethodPost, one+"/pause", "pause-session", tag, "Pause a session"), a.pauseSession)
	handleOne(a, route(http.MethodPost, one+"/resume", "resume-session", tag, "Resume a session; the receipt says what was lost"), a.resumeSession)
	handleOne(a, route(http.MethodPost, one+"/end", "end-session", tag, "End a session for good"), a.endSession)
	handleOne(a, route(http.MethodPost, one+"/interrupt", "interrupt-session", tag, "End the running turn"), a.interruptSession)
}

func (a *API) createSession(ctx context.Context, in *createInput) (*createdOutput, error) {
	req, err := in.Body.Request()
	if err != nil {
		return nil, err
	}
	caller := guard.CallerOf(ctx)
	if req.Dir != "" && !caller.Covers(holdfast.ScopeAdmin) {
		return nil, holdfast.Errorf(holdfast.KindDenied, "session.create", "this API key may not give a session the directory %s of the server's machine", holdfast.Quote(req.Dir)).
			WithHint("use a key with the scope admin, or name a workspace that has the directory")
	}
	req.MaxTrust = caller.MaxTrust()
	s, replayed, err := a.cfg.Sessions.Create(ctx, req, in.Key)
	if err != nil {
		return nil, err
	}
	return created(s, replayed), nil
}

// created returns the answer to a request that made a session. replayed is true if an earlier request with the same
// idempotency key made it.
func created(s holdfast.Session, replayed bool) *createdOutput {
	out := &createdOutput{Location: "/v1/sessions/" + string(s.ID), Body: sessionBody{s}}
	if replayed {
		out.Replayed = "true"
	}
	return out
}

func (a *API) listSessions(ctx context.Context, in *listInput) (*output[holdfast.SessionPage], error) {
	page, err := a.cfg.Views.List(ctx, holdfast.SessionFilter{
		Status: in.Status, Agent: in.Agent, Tag: in.Tag, Workspace: holdfast.Slug(in.Space), Text: in.Text, Query: in.Query, Name: in.Name, Trash: in.Trash, Cursor: in.Cursor, Limit: in.Limit,
	})
	page.Sessions = some(page.Sessions)
	return bodyOf(page, err)
}

func sessionOf(s holdfast.Session, err error) (*sessionOutput, error) {
	return &sessionOutput{Body: sessionBody{s}}, err
}

func (a *API) getSession(ctx context.Context, id holdfast.SessionID, in *SessionInput) (*sessionOutput, error) {
	return sessionOf(a.cfg.Views.Session(ctx, id))
}

func (a *API) sessionAgents(ctx context.Context, id holdfast.SessionID, in *SessionInput) (*agentStatesOutput, error) {
	states, err := a.cfg.Views.AgentStates(ctx, id)
	out := &agentStatesOutput{}
	out.Body.Agents = some(states)
	return out, err
}

func (a *API) updateSession(ctx context.Context, id holdfast.SessionID, in *updateInput) (*sessionOutput, error) {
	in.Body.MaxTrust = guard.CallerOf(ctx).MaxTrust()
	return sessionOf(a.cfg.Sessions.Update(ctx, id, in.Body))
}

func (a *API) pauseSession(ctx context.Context, id holdfast.SessionID, in *endInput) (*sessionOutput, error) {
	return sessionOf(a.cfg.Sessions.Pause(ctx, id, orZero(in.Body)))
}

func (a *API) endSession(ctx context.Context, id holdfast.SessionID, in *endInput) (*sessionOutput, error) {
	return sessionOf(a.cfg.Sessions.End(ctx, id, orZero(in.Body)))
}

func (a *API) interruptSession(ctx context.Context, id holdfast.SessionID, in *SessionInput) (*sessionOutput, error) {
	return sessionOf(a.cfg.Sessions.Interrupt(ctx, id))
}

func (a *API) resumeSession(ctx context.Context, id holdfast.SessionID, in *resumeInput) (*output[holdfast.Resumed], error) {
	return bodyOf(a.cfg.Sessions.Resume(ctx, id, orZero(in.Body)))
}

func (a *API) deleteSession(ctx context.Context, id holdfast.SessionID, in *deleteInput) (*struct{}, error) {
	req := orZero(in.Body)
	req.Interrupt = req.Interrupt || in.Interrupt
	req.Purge = req.Purge || in.Purge
	return nil, a.cfg.Trash.Delete(ctx, id, req)
}

func (a *API) restoreSession(ctx context.Context, id holdfast.SessionID, in *SessionInput) (*sessionOutput, error) {
	return sessionOf(a.cfg.Trash.Restore(ctx, id))
}

// orZero returns the value of an optional body, the zero value if it is absent.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
