package place

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast"
)

// TestASessionThatLeavesIsWaitedFor: a claim waits until the session's old place has ended, or until its caller gives up.
// Other sessions do not wait.
func TestASessionThatLeavesIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p places
		failed, end := errors.New("the box does not answer"), make(chan struct{})
		left, joined := make(chan error, 1), make(chan error, 1)
		go func() {
			left <- p.leave(t.Context(), "one", func() error { <-end; return failed })
		}()
		synctest.Wait()
		ran := map[string]bool{}
		join := func(ctx context.Context, id holdfast.SessionID, name string) error {
			return p.alone(ctx, id, func() error { ran[name] = true; return nil })
		}
		go func() { joined <- join(t.Context(), "one", "waits") }()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller is gone"))
		if err := join(ctx, "one", "gives up"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("a caller that is gone: %v", err)
		}
		if err := join(t.Context(), "other", "other"); err != nil || !ran["other"] {
			t.Errorf("the other session: %v, ran %v", err, ran)
		}
		synctest.Wait()
		if ran["waits"] || ran["gives up"] {
			t.Errorf("ran while the session left: %v", ran)
		}
		close(end)
		if err := <-left; !errors.Is(err, failed) {
			t.Errorf("left: %v", err)
		}
		if err := <-joined; err != nil || !ran["waits"] {
			t.Errorf("after the session left: %v, ran %v", err, ran)
		}
	})
}
