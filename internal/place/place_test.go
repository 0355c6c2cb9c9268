package place_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
)

// TestI15_For: a session gets the first driver that serves its trust level, or none.
//
// WS-R70.
func TestI15_For(t *testing.T) {
	levels := []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted}
	rapid.Check(t, func(t *rapid.T) {
		var drivers []place.Driver
		for range rapid.IntRange(0, 4).Draw(t, "drivers") {
			serves := rapid.SliceOfN(rapid.SampledFrom(levels), 0, 2).Draw(t, "serves")
			drivers = append(drivers, place.Driver{Pool: pool.New(pool.Config{}), Serves: serves})
		}
		s := holdfast.Session{Trust: rapid.SampledFrom(levels).Draw(t, "trust")}
		got, err := place.For(s, drivers)
		i := slices.IndexFunc(drivers, func(d place.Driver) bool { return slices.Contains(d.Serves, s.Trust) })
		if i < 0 {
			if !holdfast.IsKind(err, holdfast.KindUnavailable) || got.Pool != nil {
				t.Fatalf("no driver serves %s sessions: %+v, %v", s.Trust, got, err)
			}
			return
		}
		if err != nil || got.Pool != drivers[i].Pool {
			t.Fatalf("%s sessions go to the driver %+v, %v; want the %dth", s.Trust, got, err, i)
		}
	})
	for _, unknown := range []holdfast.Trust{"", "full", "Trusted"} {
		all := []place.Driver{{Pool: pool.New(pool.Config{}), Serves: append(levels, unknown)}}
		_, err := place.For(holdfast.Session{Trust: unknown}, all)
		if !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(err.Error(), holdfast.Quote(string(unknown))) {
			t.Errorf("a stored trust of %q: %v", unknown, err)
		}
	}
}

// TestScopesOfTheirOwn: by default no two sessions share a box or a directory.
//
// WS-R74.
func TestScopesOfTheirOwn(t *testing.T) {
	b := place.New(place.Config{Dir: "/data"}, nil)
	one, two := b.Scope("one"), b.Scope("two")
	if one.Box == two.Box || one.Dir != filepath.Join("/data", "one") || one.Owner != "one" || two.Owner != "two" {
		t.Errorf("%+v, %+v", one, two)
	}
	if _, err := b.Disk(t.Context(), "w-other"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("the box of nobody: %v", err)
	}
}
