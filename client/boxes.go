package client

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

type containersAnswer struct {
	Containers []holdfast.Container `json:"containers"`
}

// Containers lists the managed boxes.
func (c *Client) Containers(ctx context.Context) ([]holdfast.Container, error) {
	var out containersAnswer
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/containers"}, &out)
	return out.Containers, err
}

// StopContainers stops boxes and returns the boxes that were stopped.
func (c *Client) StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	var out containersAnswer
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/containers/stop", body: req, slow: true}, &out)
	return out.Containers, err
}

// PruneContainers removes boxes, and leftovers of boxes, that no session needs, and returns them; with dryRun it
// only returns what would be removed.
func (c *Client) PruneContainers(ctx context.Context, dryRun bool) (holdfast.PrunedContainers, error) {
	var out holdfast.PrunedContainers
	req := map[string]bool{"dry_run": dryRun}
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/containers/prune", body: req, slow: true}, &out)
	return out, err
}

// Health returns the state of the server; without a valid token it has only the status.
func (c *Client) Health(ctx context.Context) (holdfast.Health, error) {
	var out holdfast.Health
	err := c.do(ctx, call{method: http.MethodGet, path: "/healthz"}, &out)
	return out, err
}

// Ready returns the Health of a server that accepts work; unavailable if it does not.
func (c *Client) Ready(ctx context.Context) (holdfast.Health, error) {
	var out holdfast.Health
	err := c.do(ctx, call{method: http.MethodGet, path: "/readyz"}, &out)
	return out, err
}
