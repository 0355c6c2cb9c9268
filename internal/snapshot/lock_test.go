package snapshot

import (
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/recall"
)

// TestADroppedScopeLeavesNothing: a scope that nobody uses, and whose files have to be looked at before the next use, leaves no
// memory behind.
func TestADroppedScopeLeavesNothing(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	sc, unlock := s.lock("w-x")
	sc.ready = true
	s.memories.Put(sc, &recall.Memory{})
	unlock()
	if len(s.scopes) != 1 {
		t.Errorf("%d scopes are kept", len(s.scopes))
	}
	sc, unlock = s.lock("w-x")
	sc.ready = false
	unlock()
	if s.memories.Take(sc) != nil || len(s.scopes) != 0 {
		t.Errorf("%d scopes are left", len(s.scopes))
	}
}
