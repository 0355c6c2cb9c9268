package main

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestHZ23_ExecEndsInBoxesThatStandStill: the boxd of three boxes is stopped by a
// signal. A command with a timeout ends in each, side by side; the next one has a new
// box on the same files.
func TestHZ23_ExecEndsInBoxesThatStandStill(t *testing.T) {
	p := launch(t, t.TempDir())
	ctx := t.Context()
	var ids []holdfast.SessionID
	for range 3 {
		s, err := p.CreateSession(ctx, holdfast.CreateSession{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Exec(ctx, s.ID, holdfast.ExecRequest{Command: "echo kept > f"}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	list, err := p.Containers(ctx)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, c := range list {
		if err := syscall.Kill(c.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			_, err := p.Exec(ctx, id, holdfast.ExecRequest{Command: "true", TimeoutMS: 100})
			if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "was stopped") || holdfast.HintOf(err) == "" {
				t.Errorf("in a box that stands still: %v", err)
			}
			res, err := p.Exec(ctx, id, holdfast.ExecRequest{Command: "cat f"})
			if err != nil || string(res.Stdout) != "kept\n" {
				t.Errorf("in the new box: %q %v", res.Stdout, err)
			}
		})
	}
	wg.Wait()
}
