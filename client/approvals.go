package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

func approvalPath(id holdfast.ApprovalID) string {
	return "/v1/approvals/" + url.PathEscape(string(id))
}

// Approvals returns one page of approvals (questions to persons), the oldest question first.
func (c *Client) Approvals(ctx context.Context, f holdfast.ApprovalFilter) (holdfast.ApprovalPage, error) {
	q := url.Values{}
	setTexts(q, map[string]string{"state": f.State, "session": f.Session, "id_prefix": f.IDPrefix, "cursor": f.Cursor})
	setInt(q, "limit", int64(f.Limit))
	return ask[holdfast.ApprovalPage](ctx, c, call{method: http.MethodGet, path: "/v1/approvals", query: q})
}

// AllApprovals yields the approvals of all pages. It ends after the first error.
func (c *Client) AllApprovals(ctx context.Context, f holdfast.ApprovalFilter) iter.Seq2[holdfast.Approval, error] {
	return pages(f.Cursor, func(cursor string) ([]holdfast.Approval, string, error) {
		f.Cursor = cursor
		page, err := c.Approvals(ctx, f)
		return page.Approvals, page.Next, err
	})
}

// Approval returns one approval; not_found if no approval has that id.
func (c *Client) Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	return askFor[holdfast.Approval](ctx, c, call{method: http.MethodGet, path: approvalPath(id)}, "approval")
}

// AnswerApproval answers an approval. Only one answer is accepted: a second one fails with
// conflict, and its error quotes the first answer.
func (c *Client) AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval) (holdfast.Approval, error) {
	return askFor[holdfast.Approval](ctx, c, call{method: http.MethodPost, path: approvalPath(id), body: req}, "approval")
}

// AddedRules returns the permission rules that answers, hooks and policies added to a session and its workspace.
func (c *Client) AddedRules(ctx context.Context, id holdfast.SessionID) ([]holdfast.Rule, error) {
	return askFor[[]holdfast.Rule](ctx, c, call{method: http.MethodGet, path: sessionPath(id, "/rules")}, "rules")
}

// RevokeRule takes back a rule that allows calls, from the session and from its workspace, or with a scope from that one
// alone. It returns the rules that were removed; not_found if there was none.
func (c *Client) RevokeRule(ctx context.Context, id holdfast.SessionID, scope holdfast.ApprovalScope, rule string) ([]holdfast.Rule, error) {
	q := url.Values{}
	setTexts(q, map[string]string{"rule": rule, "scope": string(scope)})
	return askFor[[]holdfast.Rule](ctx, c, call{method: http.MethodDelete, path: sessionPath(id, "/rules"), query: q}, "rules")
}
