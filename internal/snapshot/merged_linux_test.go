package snapshot_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
)

// TestSnapshotsFollowMerges: the next snapshot builds on the packs into which the small ones of a live scope were
// merged, not on the small ones, which would then be needed again.
func TestSnapshotsFollowMerges(t *testing.T) {
	w := newWorld(t, true)
	for i := range 40 {
		w.turn(func() { w.write("workspace/a", fmt.Sprint("text ", i)) })
	}
	newest := func() []int64 {
		cp, _, err := w.store.Checkpoints.Newest(t.Context(), w.id.Box())
		must(t, err)
		return cp.Packs
	}
	before := newest()
	plan, err := collect.New(collect.Config{DB: w.store.Checkpoints, Packs: w.packs, Record: coded.Recorded}).Collect(t.Context(), false)
	must(t, err)
	merged := newest()
	if len(plan.Merges) == 0 || len(merged) >= len(before) {
		t.Fatalf("%d packs, after %d merges %d", len(before), len(plan.Merges), len(merged))
	}
	w.turn(func() { w.write("workspace/a", "after the merge") })
	after := newest()
	for _, n := range after[:len(after)-1] {
		if !slices.Contains(merged, n) {
			t.Errorf("pack %d is needed again: %v, after the merge %v", n, after, merged)
		}
	}
	if len(after) != len(merged)+1 {
		t.Errorf("packs %v, after the merge %v", after, merged)
	}
}
