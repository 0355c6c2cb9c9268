package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestFactsOutliveTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	if v, ok, err := s.Fact(t.Context(), "boot"); v != "" || ok || err != nil {
		t.Fatalf("before it is set: %q %v %v", v, ok, err)
	}
	for _, v := range []string{"one", "two"} {
		if err := s.SetFact(t.Context(), "boot", v); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range [][2]string{{"", "x"}, {"a\x00", "x"}, {"a", "\xff"}} {
		if err := s.SetFact(t.Context(), bad[0], bad[1]); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, Config{Path: path})
	if v, ok, err := s.Fact(t.Context(), "boot"); v != "two" || !ok || err != nil {
		t.Fatalf("after a restart: %q %v %v", v, ok, err)
	}
}
