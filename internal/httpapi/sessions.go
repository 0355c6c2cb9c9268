package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
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
	Body holdfast.CreateSession
}

type listInput struct {
	Status string `query:"status" doc:"starting, active, paused, error or ended."`
	Agent  string `query:"agent" doc:"The agent's name."`
	Tag    string `query:"tag" doc:"One of the session's tags."`
	Text   string `query:"text" doc:"Part of the title, in any case."`
	Query  string `query:"q" doc:"Words that all occur in the title or the conversation, as in search."`
	Name   string `query:"name" maxLength:"500" doc:"What a person calls it: the beginning or ending of an id, a title, or the beginning of one. The first of these that fits one session only; if none does, all that fit the first that fits any. Without a cursor."`
	Cursor string `query:"cursor" doc:"The next of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" doc:"The page size; 50 when absent."`
}

type listOutput struct {
	Body holdfast.SessionPage
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
	Purge     bool `query:"purge" doc:"Accept that its log and files are gone for good."`
	Body      *holdfast.EndSession
}

type resumeInput struct {
	SessionInput
	Body *holdfast.ResumeSession
}

type resumeOutput struct {
	Body holdfast.Resumed
}

func (a *API) sessionRoutes() {
	const tag, one = "sessions", "/v1/sessions/{id}"
	create := route(http.MethodPost, "/v1/sessions", "create-session", tag, "Create a session")
	create.DefaultStatus = http.StatusCreated
	huma.Register(a.huma, create, a.createSession)
	huma.Register(a.huma, route(http.MethodGet, "/v1/sessions", "list-sessions", tag, "List sessions, newest first"), a.listSessions)
	huma.Register(a.huma, route(http.MethodGet, one, "get-session", tag, "Show a session"), a.getSession)
	huma.Register(a.huma, route(http.MethodGet, one+"/agents", "list-session-agents", tag, "List what agents with a conversation of their own know of a session"), a.sessionAgents)
	huma.Register(a.huma, route(http.MethodPatch, one, "update-session", tag, "Change title, tags, mode, model, runtime or trust"), a.updateSession)
	huma.Register(a.huma, route(http.MethodDelete, one, "delete-session", tag, "End a session and remove it"), a.deleteSession)
	huma.Register(a.huma, route(http.MethodPost, one+"/pause", "pause-session", tag, "Pause a session"), a.pauseSession)
	huma.Register(a.huma, route(http.MethodPost, one+"/resume", "resume-session", tag, "Resume a session; the receipt says what was lost"), a.resumeSession)
	huma.Register(a.huma, route(http.MethodPost, one+"/end", "end-session", tag, "End a session for good"), a.endSession)
	huma.Register(a.huma, route(http.MethodPost, one+"/interrupt", "interrupt-session", tag, "End the running turn"), a.interruptSession)
}

func (a *API) createSession(ctx context.Context, in *createInput) (*createdOutput, error) {
	in.Body.MaxTrust = guard.CallerOf(ctx).MaxTrust()
	s, replayed, err := a.cfg.Sessions.Create(ctx, in.Body, in.Key)
	if err != nil {
		return nil, a.fail(err)
	}
	out := &createdOutput{Location: "/v1/sessions/" + string(s.ID), Body: sessionBody{s}}
	if replayed {
		out.Replayed = "true"
	}
	return out, nil
}

func (a *API) listSessions(ctx context.Context, in *listInput) (*listOutput, error) {
	page, err := a.cfg.Views.List(ctx, holdfast.SessionFilter{
		Status: in.Status, Agent: in.Agent, Tag: in.Tag, Text: in.Text, Query: in.Query, Name: in.Name, Cursor: in.Cursor, Limit: in.Limit,
	})
	if err != nil {
		return nil, a.fail(err)
	}
	if page.Sessions == nil {
		page.Sessions = []holdfast.Session{}
	}
	return &listOutput{page}, nil
}

// onSession parses the session id, passes it to call and answers with the session that call
// returns.
func (a *API) onSession(in SessionInput, call func(holdfast.SessionID) (holdfast.Session, error)) (*sessionOutput, error) {
	id, err := in.session()
	if err != nil {
		return nil, a.fail(err)
	}
	s, err := call(id)
	if err != nil {
		return nil, a.fail(err)
	}
	return &sessionOutput{Body: sessionBody{s}}, nil
}

func (a *API) getSession(ctx context.Context, in *SessionInput) (*sessionOutput, error) {
	return a.onSession(*in, func(id holdfast.SessionID) (holdfast.Session, error) {
		return a.cfg.Views.Session(ctx, id)
	})
}

func (a *API) sessionAgents(ctx context.Context, in *SessionInput) (*agentStatesOutput, error) {
	id, err := in.session()
	if err != nil {
		return nil, a.fail(err)
	}
	states, err := a.cfg.Views.AgentStates(ctx, id)
	if err != nil {
		return nil, a.fail(err)
	}
	out := &agentStatesOutput{}
	if out.Body.Agents = states; states == nil {
		out.Body.Agents = []holdfast.AgentState{}
	}
	return out, nil
}

func (a *API) updateSession(ctx context.Context, in *updateInput) (*sessionOutput, error) {
	in.Body.MaxTrust = guard.CallerOf(ctx).MaxTrust()
	return a.onSession(in.SessionInput, func(id holdfast.SessionID) (holdfast.Session, error) {
		return a.cfg.Sessions.Update(ctx, id, in.Body)
	})
}

func (a *API) pauseSession(ctx context.Context, in *endInput) (*sessionOutput, error) {
	return a.onSession(in.SessionInput, func(id holdfast.SessionID) (holdfast.Session, error) {
		return a.cfg.Sessions.Pause(ctx, id, orZero(in.Body))
	})
}

func (a *API) endSession(ctx context.Context, in *endInput) (*sessionOutput, error) {
	return a.onSession(in.SessionInput, func(id holdfast.SessionID) (holdfast.Session, error) {
		return a.cfg.Sessions.End(ctx, id, orZero(in.Body))
	})
}

func (a *API) interruptSession(ctx context.Context, in *SessionInput) (*sessionOutput, error) {
	return a.onSession(*in, func(id holdfast.SessionID) (holdfast.Session, error) {
		return a.cfg.Sessions.Interrupt(ctx, id)
	})
}

func (a *API) resumeSession(ctx context.Context, in *resumeInput) (*resumeOutput, error) {
	id, err := in.session()
	if err != nil {
		return nil, a.fail(err)
	}
	res, err := a.cfg.Sessions.Resume(ctx, id, orZero(in.Body))
	if err != nil {
		return nil, a.fail(err)
	}
	return &resumeOutput{res}, nil
}

func (a *API) deleteSession(ctx context.Context, in *deleteInput) (*struct{}, error) {
	id, err := in.session()
	if err != nil {
		return nil, a.fail(err)
	}
	req := orZero(in.Body)
	req.Interrupt = req.Interrupt || in.Interrupt
	req.Purge = req.Purge || in.Purge
	if err := a.cfg.Sessions.Delete(ctx, id, req); err != nil {
		return nil, a.fail(err)
	}
	return nil, nil
}

// orZero returns the value of an optional body, the zero value if it is absent.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
