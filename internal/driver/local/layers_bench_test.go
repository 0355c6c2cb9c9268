//go:build linux

package local_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// BenchmarkExecLayers is BenchmarkExec inside of layers with this many paths; "none"
// has no layer. The first command of a set makes its thread and is not measured.
func BenchmarkExecLayers(b *testing.B) {
	for _, n := range []int{-1, 0, 100, 1000} {
		name := fmt.Sprint(n)
		if n < 0 {
			name = "none"
		}
		b.Run(name, func(b *testing.B) {
			bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
				box := hello(b, ctx, d, s)
				defer box.Close()
				layer := sandbox.Layer{Write: []string{}}
				for i := range n {
					dir := fmt.Sprintf("d%d", i)
					if err := os.Mkdir(filepath.Join(s.Dir, "workspace", dir), 0o755); err != nil {
						b.Fatal(err)
					}
					layer.Write = append(layer.Write, "/workspace/"+dir)
				}
				if n >= 0 {
					ctx = sandbox.Layered(ctx, func() ([]sandbox.Layer, error) { return []sandbox.Layer{layer}, nil })
				}
				exec := func() {
					id, _ := holdfast.NewUUID(time.Now(), rand.Reader)
					call := sandbox.Call{ID: holdfast.CallID(id)}
					if res, err := box.Exec(ctx, call, wire.ExecRequest{Argv: []string{"/bin/true"}}, sandbox.ExecOptions{}); err != nil || res.Class != holdfast.ExitOK {
						b.Fatal(res, err)
					}
					box.Release(call.ID)
				}
				began := time.Now()
				exec()
				first := time.Since(began)
				for b.Loop() {
					exec()
				}
				b.ReportMetric(float64(first.Microseconds()), "µs-first")
			})
		})
	}
}
