package client

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// Models returns the models that the server offers, and the default model of new sessions.
func (c *Client) Models(ctx context.Context) (holdfast.Models, error) {
	return askFor[holdfast.Models](ctx, c, call{method: http.MethodGet, path: "/v1/models"}, "models")
}

// Server returns a description of the running server.
func (c *Client) Server(ctx context.Context) (holdfast.Server, error) {
	return askFor[holdfast.Server](ctx, c, call{method: http.MethodGet, path: "/v1/server"}, "server")
}
