package client

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Snapshots returns what the server's snapshot store holds. It needs a key with the scope admin, as do
// the other methods for the store.
func (c *Client) Snapshots(ctx context.Context) (holdfast.SnapshotStore, error) {
	return ask[holdfast.SnapshotStore](ctx, c, call{method: http.MethodGet, path: "/v1/snapshots", slow: true})
}

// CollectSnapshots removes the checkpoints and packs that no rule keeps, and returns them; with dryRun it
// only returns them. It may be repeated. The server has ten minutes for it; after the error unavailable
// it is not known how much was removed.
func (c *Client) CollectSnapshots(ctx context.Context, dryRun bool) (holdfast.CollectedSnapshots, error) {
	body := map[string]bool{"dry_run": dryRun}
	return ask[holdfast.CollectedSnapshots](ctx, c, call{method: http.MethodPost, path: "/v1/snapshots/collect", body: body, within: copyLimit})
}

// VerifySnapshots reads the whole snapshot store and returns what is damaged. Damage is not an error.
// The server has a day for it, because it reads the whole store; end ctx to give up earlier.
func (c *Client) VerifySnapshots(ctx context.Context) (holdfast.VerifiedSnapshots, error) {
	return ask[holdfast.VerifiedSnapshots](ctx, c, call{method: http.MethodPost, path: "/v1/snapshots/verify", within: verifyLimit})
}

const verifyLimit = 24 * time.Hour
