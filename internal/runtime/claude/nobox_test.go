package claude

import (
	"context"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// boxless is a host that cannot provide a box any more.
type boxless struct{ *tape }

func (boxless) Box(context.Context) (*sandbox.Box, error) {
	return nil, holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "no box starts")
}

// TestATurnWhoseBoxDoesNotComeBackFails: the CLI was at work when its box was stopped,
// and the next attempt gets no box: the turn fails, and nothing panics.
func TestATurnWhoseBoxDoesNotComeBackFails(t *testing.T) {
	x := testRuntime(t).newRun(runtime.Turn{ID: "t"}, boxless{newTape("u")})
	if err := x.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := x.turn.Drive(t.Context(), x); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Error(err)
	}
}
