//go:build linux

package local_test

import (
	"context"
	"crypto/rand"
	"io"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// BenchmarkRead reads a small file of a box.
func BenchmarkRead(b *testing.B) {
	bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
		box := hello(b, ctx, d, s)
		defer box.Close()
		if _, err := box.Write(ctx, sandbox.Call{ID: benchCall(b)}, wire.WriteRequest{Path: "f"}, []byte("x")); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := box.Read(ctx, wire.ReadRequest{Path: "f"}, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchCall(b *testing.B) holdfast.CallID {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	return holdfast.CallID(id)
}
