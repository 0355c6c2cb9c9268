package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

// CreateKey creates an API key. The second value is its secret, which cannot be retrieved
// later.
func (c *Client) CreateKey(ctx context.Context, req holdfast.CreateKey) (holdfast.Key, string, error) {
	var out struct {
		Key    holdfast.Key `json:"key"`
		Secret string       `json:"secret"`
	}
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/keys", body: req}, &out)
	return out.Key, out.Secret, err
}

// Keys lists the API keys, oldest first, including revoked ones.
func (c *Client) Keys(ctx context.Context) ([]holdfast.Key, error) {
	return askFor[[]holdfast.Key](ctx, c, call{method: http.MethodGet, path: "/v1/keys"}, "keys")
}

// RevokeKey makes an API key invalid, at once and for good.
func (c *Client) RevokeKey(ctx context.Context, id holdfast.KeyID) (holdfast.Key, error) {
	return askFor[holdfast.Key](ctx, c, call{method: http.MethodDelete, path: "/v1/keys/" + url.PathEscape(string(id))}, "key")
}
