package soak

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// While the gate is held no worker is between two steps, and all go on after.
func TestGateHoldsEveryWorker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	const workers = 8
	g := newGate(workers)
	var all sync.WaitGroup
	var working, done atomic.Int64
	for range workers {
		all.Go(func() {
			for {
				working.Add(1)
				done.Add(1)
				working.Add(-1)
				if g.pass(ctx) != nil {
					return
				}
				if ctx.Err() != nil {
					return
				}
			}
		})
	}
	for range 50 {
		if err := g.hold(ctx); err != nil {
			t.Fatal(err)
		}
		before := done.Load()
		if n := working.Load(); n != 0 {
			t.Errorf("%d workers work while held", n)
		}
		if done.Load() != before {
			t.Error("work was done while held")
		}
		g.release()
	}
	cancel()
	all.Wait()
	if err := g.hold(ctx); err == nil {
		t.Error("held workers that are gone")
	}
}

func TestProbe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "p")
	if err := Probe(socket); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		in, err := ask(socket)
		if err != nil || in.Heap == 0 || in.Goroutines == 0 {
			t.Fatalf("%+v, %v", in, err)
		}
	}
	if _, err := ask(socket + "x"); err == nil {
		t.Error("nobody there, and an answer")
	}
}
