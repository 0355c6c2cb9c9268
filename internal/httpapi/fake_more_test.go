package httpapi

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

func (f *fakeEngine) PruneContainers(_ context.Context, req holdfast.PruneContainers) (holdfast.PrunedContainers, error) {
	f.last = req
	return holdfast.PrunedContainers{DryRun: req.DryRun, Pruned: []holdfast.Pruned{{Name: "s-x", Reason: "gone"}}}, nil
}

func (f *fakeEngine) StopContainers(_ context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	return f.boxes, f.see(req)
}
