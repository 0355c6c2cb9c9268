package later_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/later"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id holdfast.SessionID = "s"

// world has one session; while a turn of it runs, nothing is taken.
type world struct {
	*later.Snapshots
	asked chan chan struct{}
	taken chan holdfast.CheckpointReason
}

// newWorld makes a world in which the work of a snapshot waits for the channel that asked gives: closed, it begins.
func newWorld() *world {
	w := &world{asked: make(chan chan struct{}, 9), taken: make(chan holdfast.CheckpointReason, 9)}
	w.Snapshots = later.New(func(_ holdfast.SessionID, work func(context.Context, journal.Row)) <-chan struct{} {
		begin, done := make(chan struct{}), make(chan struct{})
		w.asked <- begin
		go func() {
			defer close(done)
			<-begin
			work(context.Background(), journal.Row{})
		}()
		return done
	}, func(_ context.Context, _ journal.Row, reason holdfast.CheckpointReason) { w.taken <- reason })
	return w
}

// TestReasons: one snapshot is due, and of people's work also if the box ends after it.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		reasons []holdfast.CheckpointReason
		want    holdfast.CheckpointReason
	}{
		{[]holdfast.CheckpointReason{holdfast.CheckpointStop}, holdfast.CheckpointStop},
		{[]holdfast.CheckpointReason{holdfast.CheckpointDirect, holdfast.CheckpointStop}, holdfast.CheckpointDirect},
		{[]holdfast.CheckpointReason{holdfast.CheckpointStop, holdfast.CheckpointDirect}, holdfast.CheckpointDirect},
	} {
		w := newWorld()
		for i, r := range c.reasons {
			after := time.Hour
			if i == len(c.reasons)-1 {
				after = 0
			}
			w.Arm(id, r, after)
		}
		close(<-w.asked)
		if got := <-w.taken; got != c.want {
			t.Errorf("%v: taken as %s", c.reasons, got)
		}
		if got := w.Disarm(id); got != "" {
			t.Errorf("%v: %s is still due", c.reasons, got)
		}
	}
}

// TestAWaitingSnapshotIsDue: a snapshot whose time has come, and which waits for other work of the scope, is due until it begins: who
// cancels it learns its reason, and it is not taken then.
func TestAWaitingSnapshotIsDue(t *testing.T) {
	w := newWorld()
	w.Arm(id, holdfast.CheckpointDirect, 0)
	first := <-w.asked
	if w.Working(id) {
		t.Error("work is the first although a snapshot is due")
	}
	w.Worked(id)
	if got := w.Disarm(id); got != holdfast.CheckpointDirect {
		t.Errorf("%q was due", got)
	}
	close(first)
	w.Arm(id, holdfast.CheckpointStop, 0)
	close(<-w.asked)
	if got := <-w.taken; got != holdfast.CheckpointStop || len(w.taken) > 0 {
		t.Errorf("taken %s, and %d more", got, len(w.taken))
	}
}

// TestNow: work that is to be done now is done before Now returns, or never.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := newWorld(), 0
		work := func(context.Context, journal.Row) { n++ }
		go w.Now(t.Context(), id, time.Second, work)
		close(<-w.asked)
		if synctest.Wait(); n != 1 {
			t.Errorf("the work was done %d times", n)
		}
		w.Now(t.Context(), id, time.Second, work)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		w.Now(gone, id, time.Hour, work)
		for range 2 {
			close(<-w.asked)
		}
		if synctest.Wait(); n != 1 {
			t.Error("work was done after its caller gave up")
		}
	})
}

// TestWorkUnderWay: as long as people work, changes are theirs.
func TestWorkUnderWay(t *testing.T) {
	w := newWorld()
	if !w.Working(id) || w.Working(id) {
		t.Error("not the first piece of work, or not only that one, is the first")
	}
	for range 2 {
		if got := w.Disarm(id); got != holdfast.CheckpointDirect {
			t.Errorf("during the work: %q", got)
		}
		w.Worked(id)
	}
	if got := w.Disarm(id); got != "" || !w.Working(id) {
		t.Errorf("after the work: %q", got)
	}
}

// TestATurnInTheWay: a snapshot whose time comes while a turn runs stays due, because the turn may not have begun to use the
// files: what comes first, the turn's beginning or its end, takes it.
func TestATurnInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := later.New(func(holdfast.SessionID, func(context.Context, journal.Row)) <-chan struct{} {
			asked++
			return nil
		}, func(context.Context, journal.Row, holdfast.CheckpointReason) { t.Error("taken while a turn runs") })
		s.Arm(id, holdfast.CheckpointDirect, time.Second)
		<-time.After(time.Minute)
		synctest.Wait()
		if got := s.Disarm(id); got != holdfast.CheckpointDirect || asked != 1 {
			t.Errorf("%q is due, asked %d times", got, asked)
		}
		if got := s.Disarm(id); got != "" {
			t.Errorf("%q is still due", got)
		}
	})
}
