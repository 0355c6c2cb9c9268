package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
)

// Approvals lists and answers approvals, which are questions to persons whether a tool call may run, and the rules that
// answers added.
type Approvals interface {
	Approvals(ctx context.Context, f holdfast.ApprovalFilter) (holdfast.ApprovalPage, error)
	Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error)
	// AnswerApproval answers an approval. A second answer is a conflict, whose error quotes the
	// first. by is the name of the caller who answers.
	AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval, by string) (holdfast.Approval, error)
	AddedRules(ctx context.Context, id holdfast.SessionID) ([]holdfast.Rule, error)
	// RevokeRule removes a rule that allows calls, and returns what it removed. Scope "" means session and workspace.
	RevokeRule(ctx context.Context, id holdfast.SessionID, scope holdfast.ApprovalScope, rule, by string) ([]holdfast.Rule, error)
}

type approvalsInput struct {
	State    string `query:"state" doc:"pending, allowed, denied, expired or all; pending when absent."`
	Session  string `query:"session" doc:"Only the questions of this session."`
	IDPrefix string `query:"id_prefix" doc:"Only those whose id begins so."`
	Cursor   string `query:"cursor" doc:"The next of the page before."`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" doc:"The page size; 50 when absent."`
}

// ApprovalInput is the approval's id in the path of a request. It is exported because huma ignores
// unexported embedded types.
type ApprovalInput struct {
	ID string `path:"id" doc:"The approval's id, a UUID." example:"01890a5d-c0de-7a11-8b1e-9f2a3b4c5d6e"`
}

func (in ApprovalInput) named() (holdfast.ApprovalID, error) {
	return holdfast.Parse[holdfast.ApprovalID](in.ID)
}

type answerInput struct {
	ApprovalInput
	Body holdfast.AnswerApproval
}

type approvalOutput struct {
	Body struct {
		Approval holdfast.Approval `json:"approval"`
	}
}

type rulesOutput struct {
	Body struct {
		Rules []holdfast.Rule `json:"rules"`
	}
}

type revokeInput struct {
	SessionInput
	Rule  string `query:"rule" required:"true" doc:"The rule, as the list has it." example:"Bash(git push *)"`
	Scope string `query:"scope" doc:"session or workspace; both when absent."`
}

func (a *API) approvalRoutes() {
	const tag, one = "approvals", "/v1/approvals/{id}"
	handle(a, route(http.MethodGet, "/v1/approvals", "list-approvals", tag, "List the questions to persons, the longest asked first"), a.listApprovals)
	handleOne(a, route(http.MethodGet, one, "get-approval", tag, "Show a question"), a.getApproval)
	handleOne(a, route(http.MethodPost, one, "answer-approval", tag, "Answer a question: allow or deny a tool call, once"), a.answerApproval)

	const rules = "/v1/sessions/{id}/rules"
	handleOne(a, route(http.MethodGet, rules, "list-rules", tag, "List the permission rules that answers and hooks added"),
		func(ctx context.Context, id holdfast.SessionID, _ *SessionInput) (*rulesOutput, error) {
			return rulesOf(a.cfg.Approvals.AddedRules(ctx, id))
		})
	revoke := route(http.MethodDelete, rules, "revoke-rule", tag, "Take back a rule that allows calls")
	revoke.Description = "The answer lists the rules that were removed. A rule of the workspace is removed for all its sessions."
	handleOne(a, revoke, func(ctx context.Context, id holdfast.SessionID, in *revokeInput) (*rulesOutput, error) {
		return rulesOf(a.cfg.Approvals.RevokeRule(ctx, id, holdfast.ApprovalScope(in.Scope), in.Rule, guard.CallerOf(ctx).Name()))
	})
}

func rulesOf(list []holdfast.Rule, err error) (*rulesOutput, error) {
	out := &rulesOutput{}
	out.Body.Rules = some(list)
	return out, err
}

func (a *API) listApprovals(ctx context.Context, in *approvalsInput) (*output[holdfast.ApprovalPage], error) {
	page, err := a.cfg.Approvals.Approvals(ctx, holdfast.ApprovalFilter{
		State: in.State, Session: in.Session, IDPrefix: in.IDPrefix, Cursor: in.Cursor, Limit: in.Limit,
	})
	page.Approvals = some(page.Approvals)
	return bodyOf(page, err)
}

func (a *API) getApproval(ctx context.Context, id holdfast.ApprovalID, _ *ApprovalInput) (*approvalOutput, error) {
	return approvalOf(a.cfg.Approvals.Approval(ctx, id))
}

func approvalOf(got holdfast.Approval, err error) (*approvalOutput, error) {
	out := &approvalOutput{}
	out.Body.Approval = got
	return out, err
}

// answerApproval refuses a caller who could not change the approval's session: a key that is
// limited to untrusted sessions cannot answer for a trusted one.
func (a *API) answerApproval(ctx context.Context, id holdfast.ApprovalID, in *answerInput) (*approvalOutput, error) {
	if err := in.Body.Check(); err != nil {
		return nil, err
	}
	got, err := a.cfg.Approvals.Approval(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := a.guard.Within(ctx, got.Session); err != nil {
		return nil, err
	}
	return approvalOf(a.cfg.Approvals.AnswerApproval(ctx, id, in.Body, guard.CallerOf(ctx).Name()))
}
