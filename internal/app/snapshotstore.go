package app

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
)

// snapshotStore implements httpapi.Snapshots.
type snapshotStore struct {
	db        collect.DB
	collector *collect.Collector
}

// Store implements httpapi.Snapshots.
func (s snapshotStore) Store(ctx context.Context) (holdfast.SnapshotStore, error) {
	var out holdfast.SnapshotStore
	of, lists := map[holdfast.SessionID]*holdfast.SessionSnapshots{}, map[holdfast.SessionID]map[int64]bool{}
	for cp, err := range s.db.Needed(ctx) {
		if err != nil {
			return out, err
		}
		one := of[cp.Session]
		if one == nil {
			one = &holdfast.SessionSnapshots{Session: cp.Session}
			of[cp.Session], lists[cp.Session] = one, map[int64]bool{}
		}
		out.Checkpoints++
		one.Checkpoints++
		if cp.CreatedAt.After(one.Newest) {
			one.Newest = cp.CreatedAt
		}
		for _, n := range cp.Packs {
			lists[cp.Session][n] = true
		}
	}
	packs, err := s.db.AllPacks(ctx)
	if err != nil {
		return out, err
	}
	size := map[int64]int64{}
	for _, p := range packs {
		size[p.Number] = p.Bytes
		out.Packs++
		out.Bytes += p.Bytes
		if p.Unused != nil {
			out.UnusedPacks++
			out.UnusedBytes += p.Bytes
		}
	}
	for id, one := range of {
		for n := range lists[id] {
			one.Packs++
			one.Bytes += size[n]
		}
		out.Sessions = append(out.Sessions, *one)
	}
	slices.SortFunc(out.Sessions, func(a, b holdfast.SessionSnapshots) int {
		return cmp.Or(b.Newest.Compare(a.Newest), cmp.Compare(a.Session, b.Session))
	})
	return out, nil
}

// Collect implements httpapi.Snapshots.
func (s snapshotStore) Collect(ctx context.Context, dry bool) (holdfast.CollectedSnapshots, error) {
	plan, err := s.collector.Collect(ctx, dry)
	out := holdfast.CollectedSnapshots{DryRun: dry, Faults: faultsOf(plan.Faults)}
	for _, d := range plan.Checkpoints {
		out.Checkpoints = append(out.Checkpoints, holdfast.ReportedCheckpoint{ID: d.Checkpoint, Session: d.Session, Reason: string(d.Reason)})
	}
	merged := map[int64]bool{}
	for _, m := range plan.Merges {
		out.Merged += len(m.Packs)
		out.MergedBytes += m.Bytes
		for _, n := range m.Packs {
			merged[n] = true
		}
	}
	why := func(p journal.Pack) holdfast.ReportedPack {
		reason := "unused"
		if merged[p.Number] {
			reason = "merged"
		}
		return holdfast.ReportedPack{ID: p.ID, Bytes: p.Bytes, Reason: reason}
	}
	for _, p := range plan.Mark {
		out.Marked = append(out.Marked, why(p))
		out.MarkedBytes += p.Bytes
	}
	for _, p := range plan.Remove {
		out.Removed = append(out.Removed, why(p))
		out.RemovedBytes += p.Bytes
	}
	for _, id := range plan.Orphans {
		out.Removed = append(out.Removed, holdfast.ReportedPack{ID: id.String(), Reason: "orphan"})
	}
	return out, err
}

// Verify implements httpapi.Snapshots.
func (s snapshotStore) Verify(ctx context.Context) (holdfast.VerifiedSnapshots, error) {
	r, err := s.collector.Verify(ctx, nil)
	out := holdfast.VerifiedSnapshots{Checkpoints: r.Checkpoints, Packs: r.Packs, Blobs: r.Blobs, Bytes: r.Bytes, Faults: faultsOf(r.Faults)}
	for _, d := range r.Damaged {
		out.Damaged = append(out.Damaged, holdfast.ReportedCheckpoint{ID: d.Checkpoint, Session: d.Session, Paths: d.Paths})
	}
	return out, err
}

func faultsOf(list []collect.Fault) (out []holdfast.ReportedPack) {
	for _, f := range list {
		id := f.Pack.String()
		out = append(out, holdfast.ReportedPack{ID: id, Reason: strings.TrimPrefix(f.Why, "pack "+id+": "), Checkpoints: f.Checkpoints})
	}
	return out
}
