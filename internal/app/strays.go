package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
)

// Strays returns what does not fit together in the snapshot store of a data directory that no server uses:
// packs that the database does not know, and packs of the database that cannot be used. It removes the
// former, as the next start of a server would, unless the database knows no pack at all.
func Strays(ctx context.Context, data string) (out []string, err error) {
	store, err := openStore(ctx, data, slog.New(slog.DiscardHandler), sqlite.Config{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	packs, err := openPacks(data, nil, pack.Config{})
	if err != nil {
		return nil, err
	}
	found, err := collect.New(collect.Config{DB: store.Checkpoints, Packs: packs}).Start(ctx)
	for _, id := range append(found.Orphans, found.Unknown...) {
		out = append(out, fmt.Sprintf("pack %s: the database does not know it", id))
	}
	for _, f := range found.Faults {
		out = append(out, fmt.Sprintf("pack %s: %s; %d checkpoints need it", f.Pack, f.Why, len(f.Checkpoints)))
	}
	return out, err
}
