package bench

import (
	"context"
	"path/filepath"
	"strings"
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

// A full soak takes 75 samples after its warm-up, one every 20 s.
func TestGrowthIsMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		judge string
		gate  float64
		bend  func(i int) float64
		want  string
	}{
		"level":                      {"slope", 2, func(int) float64 { return 8 }, ""},
		"noise without a trend":      {"slope", 2, func(i int) float64 { return 8 + 0.2*float64(i%2) }, ""},
		"2.5 MB an hour":             {"slope", 2, func(i int) float64 { return 8 + 2.5*20*float64(i)/3600 }, "slope 2.50"},
		"shrinking":                  {"slope", 2, func(i int) float64 { return 8 - 2.5*20*float64(i)/3600 }, ""},
		"a resident set that moves":  {"spread", 10, func(i int) float64 { return 60 + 7*float64(i%2) }, "spread 11.7"},
		"a resident set that rests":  {"spread", 10, func(i int) float64 { return 60 + 5*float64(i%2) }, ""},
		"one descriptor left open":   {"spread", 0, func(i int) float64 { return 120 + float64(i/40) }, "spread 0.83"},
		"as many goroutines as ever": {"spread", 0, func(int) float64 { return 300 }, ""},
	} {
		f := Figure{Name: name, Judge: c.judge, Gate: c.gate, Rule: "a rule", Every: 20}
		for i := range 75 {
			f.Samples = append(f.Samples, c.bend(i))
		}
		r := Report{Runs: []Run{{Figures: []Figure{f}}}}
		var out strings.Builder
		if err := r.Print(&out); err != nil {
			t.Fatal(err)
		}
		if (c.want == "") != r.OK() || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: want %q, got %s", name, c.want, out.String())
		}
	}
	if f := (Figure{Judge: "slope", Samples: []float64{3}}); f.Value() != 0 {
		t.Errorf("one sample has a slope of %v", f.Value())
	}
}
