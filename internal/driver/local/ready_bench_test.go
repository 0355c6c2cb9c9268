//go:build linux

package local_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
)

// BenchmarkReadyPrewarmed is from a ready boot to the answered hello (gate: 2 ms).
// Boots are made, and boxes ended, twenty at a time in between: what the kernel
// has to clean up after one would disturb the next.
func BenchmarkReadyPrewarmed(b *testing.B) {
	const batch = 20
	bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
		var took []float64
		var up []*sandbox.Box
		end := func() {
			for _, box := range up {
				_ = box.Close()
				if err := d.Remove(ctx, box.ID()); err != nil {
					b.Fatal(err)
				}
			}
			up = nil
		}
		defer end()
		for b.Loop() {
			b.StopTimer()
			if len(took)%batch == 0 {
				end()
				if err := d.Prewarm(ctx, batch); err != nil {
					b.Fatal(err)
				}
			}
			mine := s
			mine.Box = holdfast.BoxID(fmt.Sprintf("w-bench-%d", len(took)))
			mine.Dir = filepath.Join(s.Dir, string(mine.Box))
			b.StartTimer()
			began := time.Now()
			mine, ok := d.Reserve(mine)
			box := hello(b, ctx, d, mine)
			took = append(took, float64(time.Since(began).Microseconds())/1000)
			b.StopTimer()
			if !ok {
				b.Fatal("no boot was ready")
			}
			up = append(up, box)
			b.StartTimer()
		}
		reportTimes(b, took)
	})
}

// reportTimes reports the best and the middle, which other work on the machine
// disturbs less than the mean.
func reportTimes(b *testing.B, ms []float64) {
	slices.Sort(ms)
	b.ReportMetric(ms[0], "min-ms")
	b.ReportMetric(ms[len(ms)/2], "p50-ms")
}
