package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// dryInput is the body of a request that removes what is not needed.
type dryInput struct {
	Body *struct {
		DryRun bool `json:"dry_run,omitempty" doc:"Only name what would be removed."`
	}
}

func (a *API) snapshotRoutes() {
	const tag, store = "snapshots", "/v1/snapshots"
	handle(a, route(http.MethodGet, store, "list-snapshots", tag, "Show what the snapshot store holds, by session"),
		func(ctx context.Context, _ *struct{}) (*output[holdfast.SnapshotStore], error) {
			held, err := a.cfg.Snapshots.Store(ctx)
			held.Sessions = some(held.Sessions)
			return bodyOf(held, err)
		})

	collect := route(http.MethodPost, store+"/collect", "collect-snapshots", tag, "Remove the checkpoints and packs that no rule keeps")
	collect.Description = "The server does so by itself every few minutes. The newest checkpoint of each session stays. With dry_run nothing is removed."
	handle(a, collect, func(ctx context.Context, in *dryInput) (*output[holdfast.CollectedSnapshots], error) {
		done, err := a.cfg.Snapshots.Collect(ctx, orZero(in.Body).DryRun)
		done.Checkpoints, done.Marked, done.Removed, done.Faults = some(done.Checkpoints), some(done.Marked), some(done.Removed), some(done.Faults)
		return bodyOf(done, err)
	})

	verify := route(http.MethodPost, store+"/verify", "verify-snapshots", tag, "Read the whole snapshot store and say what is damaged")
	verify.Description = "The status is 200 also if something is damaged. Nothing is changed. It takes as long as the disk needs to read the store."
	handle(a, verify, func(ctx context.Context, _ *struct{}) (*output[holdfast.VerifiedSnapshots], error) {
		rep, err := a.cfg.Snapshots.Verify(ctx)
		rep.Damaged, rep.Faults = some(rep.Damaged), some(rep.Faults)
		return bodyOf(rep, err)
	})
}
