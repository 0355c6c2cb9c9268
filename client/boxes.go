package client

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// Containers lists the managed boxes.
func (c *Client) Containers(ctx context.Context) ([]holdfast.Container, error) {
	return askFor[[]holdfast.Container](ctx, c, call{method: http.MethodGet, path: "/v1/containers"}, "containers")
}

// StopContainers stops boxes and returns the boxes that were stopped.
func (c *Client) StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	return askFor[[]holdfast.Container](ctx, c, call{method: http.MethodPost, path: "/v1/containers/stop", body: req, slow: true}, "containers")
}

// PruneContainers removes boxes, and leftovers of boxes, that no session needs, and returns them; with dryRun it
// only returns what would be removed.
func (c *Client) PruneContainers(ctx context.Context, dryRun bool) (holdfast.PrunedContainers, error) {
	req := map[string]bool{"dry_run": dryRun}
	return ask[holdfast.PrunedContainers](ctx, c, call{method: http.MethodPost, path: "/v1/containers/prune", body: req, slow: true})
}

// Health returns the state of the server; without a valid token it has only the status.
func (c *Client) Health(ctx context.Context) (holdfast.Health, error) {
	return ask[holdfast.Health](ctx, c, call{method: http.MethodGet, path: "/healthz"})
}

// Ready returns the Health of a server that accepts work; unavailable if it does not.
func (c *Client) Ready(ctx context.Context) (holdfast.Health, error) {
	return ask[holdfast.Health](ctx, c, call{method: http.MethodGet, path: "/readyz"})
}
