package client

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// Models returns the models that the server offers, and the default model of new sessions.
func (c *Client) Models(ctx context.Context) (holdfast.Models, error) {
	var out struct {
		Models holdfast.Models `json:"models"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/models"}, &out)
	return out.Models, err
}

// Server describes the running server.
func (c *Client) Server(ctx context.Context) (holdfast.Server, error) {
	var out struct {
		Server holdfast.Server `json:"server"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/server"}, &out)
	return out.Server, err
}
