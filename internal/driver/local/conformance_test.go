//go:build linux

package local_test

import (
	"os"
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

// conformance is the contract of every driver; with warm, every box that shares nothing comes out of a ready boot.
func conformance(t *testing.T, warm bool, opts ...option) {
	homes := map[sandbox.Driver]string{}
	freezes := capable(t, open(t, home(t), opts...), "freeze")
	wrap := func(d *local.Driver) sandbox.Driver {
		if !freezes {
			return &noFreezer{d, d}
		}
		return d
	}
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(t *testing.T) sandbox.Driver {
			dir := home(t)
			d := wrap(open(t, dir, opts...))
			homes[d] = dir
			return d
		},
		Again: func(t *testing.T, d sandbox.Driver) sandbox.Driver {
			if warm { // the next server ends the ready boots of one that died
				if err := unwrap(d).Close(); err != nil {
					t.Fatal(err)
				}
			}
			return wrap(open(t, homes[d], opts...))
		},
		Spec: func() func(*testing.T, sandbox.Driver, string) sandbox.Spec {
			made := map[string]sandbox.Spec{}
			return func(t *testing.T, d sandbox.Driver, name string) sandbox.Spec {
				key := homes[d] + "/" + name
				s, ok := made[key]
				if !ok {
					s = spec(homes[d], name)
					if warm {
						s = reserve(t, d, s)
					}
					made[key] = s
				}
				return s
			}
		}(),
		Isolates: true, RealPrograms: true, Terminals: true, FixedPaths: true,
	})
}

// reserve returns the spec of a new box for which a ready boot is reserved.
func reserve(t *testing.T, d sandbox.Driver, s sandbox.Spec) sandbox.Spec {
	t.Helper()
	if err := unwrap(d).Prewarm(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s, ok := unwrap(d).Reserve(s)
	if !ok {
		t.Fatalf("no ready boot for box %s", s.Box)
	}
	return s
}

func unwrap(d sandbox.Driver) *local.Driver {
	if hidden, ok := d.(*noFreezer); ok {
		d = hidden.Driver
	}
	return d.(*local.Driver)
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
