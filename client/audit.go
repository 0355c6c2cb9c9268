package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-run/holdfast"
)

// Audit opens an export of the audit chain, the records after a number; the caller
// closes it. It is complete when it ends with a closing line, which
// holdfast audit verify looks for.
func (c *Client) Audit(ctx context.Context, after int64) (io.ReadCloser, error) {
	resp, err := c.open(ctx, call{
		method: http.MethodGet, path: "/v1/audit", query: url.Values{"after": {strconv.FormatInt(after, 10)}},
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// AuditHead is the newest place in the audit chain, signed now.
func (c *Client) AuditHead(ctx context.Context) (holdfast.AuditHead, error) {
	var out holdfast.AuditHead
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/audit/head"}, &out)
	return out, err
}
