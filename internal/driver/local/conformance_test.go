//go:build linux

package local_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest"
)

// noFreezer hides a power that this machine does not give: the suite takes every
// Freezer at its word.
type noFreezer struct {
	sandbox.Driver
	sandbox.Sharer
}

// warmed starts every new box out of a ready boot. ids are those that boxes have
// kept since, by directory.
type warmed struct {
	*local.Driver
	ids *sync.Map
}

func (w *warmed) Ensure(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	if s.Shared { // it never comes out of a ready boot
		return w.Driver.Ensure(ctx, s)
	}
	if err := w.Prewarm(ctx, 1); err != nil {
		return sandbox.Info{}, err
	}
	if kept, ok := w.ids.Load(s.Dir); ok {
		s.BoxdUID, s.ToolUID = kept.(sandbox.Spec).BoxdUID, kept.(sandbox.Spec).ToolUID
	} else {
		s, _ = w.Reserve(s)
		w.ids.Store(s.Dir, s)
	}
	return w.Driver.Ensure(ctx, s)
}

// conformance is the contract of every driver.
func conformance(t *testing.T, warm bool, opts ...option) {
	homes := map[sandbox.Driver]string{}
	ids := new(sync.Map)
	freezes := capable(t, open(t, home(t), opts...), "freeze")
	wrap := func(d *local.Driver) sandbox.Driver {
		var out sandbox.Driver = d
		if warm {
			out = &warmed{d, ids}
		}
		if !freezes {
			out = &noFreezer{out, d}
		}
		return out
	}
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(t *testing.T) sandbox.Driver {
			dir := home(t)
			d := wrap(open(t, dir, opts...))
			homes[d] = dir
			return d
		},
		Again: func(t *testing.T, d sandbox.Driver) sandbox.Driver { return wrap(open(t, homes[d], opts...)) },
		Spec: func() func(*testing.T, sandbox.Driver, string) sandbox.Spec {
			made := map[string]sandbox.Spec{}
			return func(_ *testing.T, d sandbox.Driver, name string) sandbox.Spec {
				key := homes[d] + "/" + name
				s, ok := made[key]
				if !ok {
					s = spec(homes[d], name)
					made[key] = s
				}
				return s
			}
		}(),
		Isolates: true, RealPrograms: true, Terminals: true, FixedPaths: true,
	})
}

func TestConformance(t *testing.T) {
	if _, ok := testkit.IsUser(); !ok && os.Geteuid() != 0 {
		t.Log("as the present user")
	}
	conformance(t, false)
}

// TestConformancePrewarmed: a box out of a ready boot keeps the same contract.
func TestConformancePrewarmed(t *testing.T) {
	testkit.Long(t)
	conformance(t, true)
}

// capable reports whether the driver's probe found a capability.
func capable(t *testing.T, d sandbox.Driver, name string) bool {
	t.Helper()
	for _, c := range d.Probe(t.Context()).Capabilities {
		if c.Name == name {
			return c.OK
		}
	}
	t.Fatalf("the probe says nothing of %s", name)
	return false
}
