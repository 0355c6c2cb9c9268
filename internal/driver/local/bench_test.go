//go:build linux

package local_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// bench opens a driver and runs fn with a spec whose box is removed afterwards.
func bench(b *testing.B, fn func(ctx context.Context, d *local.Driver, s sandbox.Spec)) {
	program := testkit.Boxd(b)
	dir := b.TempDir()
	d, err := local.New(local.Config{
		Home: dir, Boxd: boxd.File(program),
		LimitsMode: sandbox.LimitsBestEffort, Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(dir),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	s := spec(dir, "bench")
	defer d.Remove(context.Background(), s.Box)
	fn(b.Context(), d, s)
}

func hello(b *testing.B, ctx context.Context, d *local.Driver, s sandbox.Spec) *sandbox.Box {
	if _, err := d.Ensure(ctx, s); err != nil {
		b.Fatal(err)
	}
	conn, err := d.Connect(ctx, s.Box)
	if err != nil {
		b.Fatal(err)
	}
	box, err := sandbox.Dial(ctx, s.Box, conn, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	return box
}

// BenchmarkReady is from nothing to the answered hello (gate: 15 ms).
func BenchmarkReady(b *testing.B) {
	bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
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
}

// BenchmarkExec is one hardened exec of true (gate: 1.5 ms).
func BenchmarkExec(b *testing.B) {
	bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
		box := hello(b, ctx, d, s)
		defer box.Close()
		for b.Loop() {
			id, _ := holdfast.NewUUID(time.Now(), rand.Reader)
			call := sandbox.Call{ID: holdfast.CallID(id)}
			if _, err := box.Exec(ctx, call, wire.ExecRequest{Argv: []string{"/bin/true"}}, sandbox.ExecOptions{}); err != nil {
				b.Fatal(err)
			}
			box.Release(call.ID)
		}
	})
}

// BenchmarkFreezeThaw is a freeze and a thaw (gate: 1 ms each).
func BenchmarkFreezeThaw(b *testing.B) {
	bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
		box := hello(b, ctx, d, s)
		defer box.Close()
		for b.Loop() {
			if err := d.Freeze(ctx, s.Box); err != nil {
				b.Skip(err)
			}
			if err := d.Thaw(ctx, s.Box); err != nil {
				b.Fatal(err)
			}
		}
	})
}
