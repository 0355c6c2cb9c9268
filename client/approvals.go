package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

type approvalAnswer struct {
	Approval holdfast.Approval `json:"approval"`
}

func approvalPath(id holdfast.ApprovalID) string {
	return "/v1/approvals/" + url.PathEscape(string(id))
}

// Approvals is one page of questions to persons, the longest asked first.
func (c *Client) Approvals(ctx context.Context, f holdfast.ApprovalFilter) (holdfast.ApprovalPage, error) {
	q := url.Values{}
	for k, v := range map[string]string{"state": f.State, "session": f.Session, "id_prefix": f.IDPrefix, "cursor": f.Cursor} {
		if v != "" {
			q.Set(k, v)
		}
	}
	setInt(q, "limit", int64(f.Limit))
	var out holdfast.ApprovalPage
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/approvals", query: q}, &out)
	return out, err
}

// AllApprovals goes through all pages. It ends after the first error.
func (c *Client) AllApprovals(ctx context.Context, f holdfast.ApprovalFilter) iter.Seq2[holdfast.Approval, error] {
	return func(yield func(holdfast.Approval, error) bool) {
		for {
			page, err := c.Approvals(ctx, f)
			if err != nil {
				yield(holdfast.Approval{}, err)
				return
			}
			for _, a := range page.Approvals {
				if !yield(a, nil) {
					return
				}
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return
			}
		}
	}
}

// Approval is one question; not_found for an unknown one.
func (c *Client) Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error) {
	var out approvalAnswer
	err := c.do(ctx, call{method: http.MethodGet, path: approvalPath(id)}, &out)
	return out.Approval, err
}

// AnswerApproval answers a question, once: a second answer is conflict and quotes
// the first.
func (c *Client) AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval) (holdfast.Approval, error) {
	var out approvalAnswer
	err := c.do(ctx, call{method: http.MethodPost, path: approvalPath(id), body: req}, &out)
	return out.Approval, err
}
