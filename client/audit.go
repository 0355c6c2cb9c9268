package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-run/holdfast"
)

// Audit returns an export of the audit chain's records with a number above after; the caller has
// to close it. The export is complete only if it ends with a closing line, which the command
// holdfast audit verify checks.
func (c *Client) Audit(ctx context.Context, after int64) (io.ReadCloser, error) {
	resp, err := c.open(ctx, call{
		method: http.MethodGet, path: "/v1/audit", query: url.Values{"after": {strconv.FormatInt(after, 10)}},
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// AuditHead returns the newest record's number and hash in the audit chain, signed by the server.
func (c *Client) AuditHead(ctx context.Context) (holdfast.AuditHead, error) {
	var out holdfast.AuditHead
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/audit/head"}, &out)
	return out, err
}
