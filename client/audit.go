package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

// Audit returns an export of the audit log's records after a position, such as 7:12 for record 12
// of chain 7; all of them if after is empty. The caller has to close it. The export is complete
// only if it ends with a closing line, which the command holdfast audit verify checks.
func (c *Client) Audit(ctx context.Context, after string) (io.ReadCloser, error) {
	query := url.Values{}
	setTexts(query, map[string]string{"after": after})
	return c.content(ctx, call{method: http.MethodGet, path: "/v1/audit", query: query})
}

// AuditHead returns the position and hash of the newest record of the server's audit chain, signed
// by the server.
func (c *Client) AuditHead(ctx context.Context) (holdfast.AuditHead, error) {
	return ask[holdfast.AuditHead](ctx, c, call{method: http.MethodGet, path: "/v1/audit/head"})
}
