package place

import (
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestAliveReportsTheLastLookOnce: what Untouched found is reported once, and not after a claim of the box.
func TestAliveReportsTheLastLookOnce(t *testing.T) {
	var c Calm
	box, one := holdfast.BoxID("w-a"), holdfast.SessionID("one")
	looked := func(alive bool) {
		now := &look{boxes: []holdfast.BoxID{box}}
		c.begin(one, now)
		now.alive = alive
	}
	found := func(what string, want bool) {
		t.Helper()
		if got := c.foundAlive(one); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	found("no look", false)
	looked(true)
	found("a process", true)
	found("again", false)
	looked(false)
	found("no process", false)
	looked(true)
	looked(false)
	found("a newer look", false)
	looked(true)
	c.claimed(box, nil)
	found("a claim since", false)
}
