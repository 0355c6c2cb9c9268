//go:build linux

package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
)

// BenchmarkReadyWalls measures from nothing to the answered hello with masks, and with
// masks that each need a directory pinned (gate: 15 ms).
func BenchmarkReadyWalls(b *testing.B) {
	for _, c := range []struct {
		masks int
		pins  bool
	}{{0, false}, {10, false}, {100, false}, {100, true}} {
		b.Run(fmt.Sprintf("masks=%d,pins=%v", c.masks, c.pins), func(b *testing.B) {
			bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
				box := hello(b, ctx, d, s)
				_ = box.Close()
				for i := range c.masks {
					p := fmt.Sprintf("f%d", i)
					if c.pins {
						p = fmt.Sprintf("d%d/f", i)
					}
					file := filepath.Join(s.Dir, "workspace", p)
					if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
						b.Fatal(err)
					}
					if err := os.WriteFile(file, nil, 0o644); err != nil {
						b.Fatal(err)
					}
					s.Walls.Masked = append(s.Walls.Masked, "/workspace/"+p)
				}
				if err := d.Stop(ctx, s.Box); err != nil {
					b.Fatal(err)
				}
				var took []float64
				for b.Loop() {
					began := time.Now()
					box := hello(b, ctx, d, s)
					took = append(took, float64(time.Since(began).Microseconds())/1000)
					b.StopTimer()
					_ = box.Close()
					if err := d.Stop(ctx, s.Box); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				reportTimes(b, took)
			})
		})
	}
}
