package engine_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// TestNoCommandDuringARewind: a command that a person runs after a rewind has stopped the box does not start another one
// while the rewind works on the files (I-43). After the rewind it does.
func TestNoCommandDuringARewind(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	run := func(ctx context.Context, command string) error {
		_, err := m.Exec(ctx, id, holdfast.ExecRequest{Command: command}, nil, nil)
		return err
	}
	if err := run(t.Context(), "true"); err != nil {
		t.Fatal(err)
	}
	_, err := m.Branching().Quiet(t.Context(), id, "rewind", false, func(ctx context.Context, _ journal.Row) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := run(ctx, "touch meanwhile"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("a command during the rewind: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.path(id, "meanwhile")); err == nil {
		t.Error("the command ran during the rewind")
	}
	if err := run(t.Context(), "touch later"); err != nil {
		t.Error(err)
	}
}
