package local

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// TestHZ8_UnprovenTreeOfRoot: a boxd that does not report the proof gets no tree of root's; any other box needs none.
func TestHZ8_UnprovenTreeOfRoot(t *testing.T) {
	s := sandbox.Spec{Workspace: "/srv/project", RootTree: &sandbox.RootTree{Inode: 1}}
	for _, inForce := range [][]string{nil, {"seccomp", "no-capabilities"}} {
		if err := proven(s, inForce); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("in force %q: %v", inForce, err)
		}
	}
	if err := proven(s, []string{"seccomp", "no-special-modes"}); err != nil {
		t.Error(err)
	}
	if err := proven(sandbox.Spec{}, nil); err != nil {
		t.Error(err)
	}
}
