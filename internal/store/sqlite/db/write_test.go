package db

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
)

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// occupy keeps the writer busy with a transaction of nothing until the returned
// function is called.
func occupy(t *testing.T, s *notes) (release func()) {
	t.Helper()
	refusal := holdfast.Errorf(holdfast.KindConflict, "test", "nothing")
	started, stop, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		ended <- s.Do(context.WithoutCancel(t.Context()), "occupy", &Op{Plan: func(*Tx) error {
			close(started)
			<-stop
			return refusal
		}})
	}()
	<-started
	release = func() {
		once.Do(func() {
			close(stop)
			if err := <-ended; err != error(refusal) {
				t.Errorf("occupy: %v", err)
			}
		})
	}
	t.Cleanup(release)
	return release
}

// queued counts the Ops that wait for the writer.
func (n *notes) queued() int {
	n.writer.queue.mu.Lock()
	defer n.writer.queue.mu.Unlock()
	return len(n.writer.queue.ops)
}

// TestABatchIsOneTransaction counts the commits that a crowd needs.
func TestABatchIsOneTransaction(t *testing.T) {
	n := openNotes(t, Config{})
	var commits atomic.Int32
	n.writer.fault = func() error { commits.Add(1); return nil }
	release := occupy(t, n)
	var wg sync.WaitGroup
	for i := 1; i <= 100; i++ {
		wg.Go(func() {
			if err := n.write(t.Context(), i, "x", false); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all queue", func() bool { return n.queued() == 100 })
	release()
	wg.Wait()
	if n := commits.Load(); n != 1 {
		t.Errorf("%d transactions for 100 Ops", n)
	}
	n.check(t, 100)
}

// TestABusyWriterWaitsForMoreOps: after a batch of several Ops the writer waits for as many, for at most
// gatherTime. With one session at work it does not wait.
func TestABusyWriterWaitsForMoreOps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue{wake: make(chan struct{}, 1)}
		takes := func(put, ops int, wait time.Duration) {
			t.Helper()
			for range put {
				q.put(&Op{})
			}
			begun := time.Now()
			if n := len(q.take()); n != ops || time.Since(begun) != wait {
				t.Errorf("a batch of %d after %v, want %d after %v", n, time.Since(begun), ops, wait)
			}
		}
		takes(1, 1, 0)
		takes(1, 1, 0)
		takes(3, 3, 0)
		takes(4, 4, 0)
		later := func(n int) {
			for range n {
				q.put(&Op{})
			}
		}
		time.AfterFunc(gatherTime/2, func() { later(3) })
		takes(1, 4, gatherTime/2+moreTime)
		time.AfterFunc(gatherTime/2, func() { later(1) })
		takes(1, 2, gatherTime)
		takes(1, 1, gatherTime)
		takes(1, 1, gatherTime)
		takes(1, 1, 0)
		takes(2, 2, 0)
		time.AfterFunc(time.Hour, func() { later(1) })
		takes(0, 1, time.Hour+gatherTime)
	})
}

func TestALockOfAnotherProgramIsNotFatal(t *testing.T) {
	n := openNotes(t, Config{busy: 20 * time.Millisecond})
	tx, err := plain(t, n.cfg.Path).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = n.write(t.Context(), 1, "x", false)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "locked") || holdfast.HintOf(err) == "" {
		t.Fatalf("%v (hint %q)", err, holdfast.HintOf(err))
	}
	if err := n.Healthy(); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := n.write(t.Context(), 1, "x", false); err != nil {
		t.Fatal(err)
	}
	n.check(t, 1)
}

func TestBatchesAreBounded(t *testing.T) {
	q := queue{wake: make(chan struct{}, 1)}
	for range batchOps + 10 {
		q.put(&Op{})
	}
	if n := len(q.take()); n != batchOps {
		t.Errorf("a batch of %d", n)
	}
	if n := len(q.take()); n != 10 {
		t.Errorf("a rest of %d", n)
	}
	for _, weight := range []int{batchBytes / 2, batchBytes, 1, 3 * batchBytes, 1} {
		q.put(&Op{Weight: weight})
	}
	gone := &Op{}
	gone.state.Store(opGivenUp)
	q.put(gone)
	q.close()
	if q.put(&Op{}) {
		t.Error("a closed queue takes more")
	}
	var sizes []int
	for ops := q.take(); ops != nil; ops = q.take() {
		sizes = append(sizes, len(ops))
	}
	if fmt.Sprint(sizes) != "[2 2 1]" {
		t.Errorf("batches of %v", sizes)
	}
}

func TestAnOpCanBeWithdrawnUntilItIsTaken(t *testing.T) {
	n := openNotes(t, Config{})
	release := occupy(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- n.write(ctx, 1, "x", false) }()
	eventually(t, "the Op queues", func() bool { return n.queued() == 1 })
	cancel()
	if err := <-answer; !holdfast.IsKind(err, holdfast.KindUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("withdrawn: %v", err)
	}
	release()
	if err := n.write(t.Context(), 1, "y", false); err != nil {
		t.Errorf("the withdrawn Op was carried out: %v", err)
	}
	n.check(t, 1)
}

// TestHZ17_TheLogStaysBounded writes without pause: checkpoints keep up with it
// although nobody waits for them.
func TestHZ17_TheLogStaysBounded(t *testing.T) {
	const checkpoint = 256 << 10
	n := openNotes(t, Config{CheckpointBytes: checkpoint})
	var wg sync.WaitGroup
	var number atomic.Int64
	var largest atomic.Int64
	big := strings.Repeat("z", 8000)
	for range 8 {
		wg.Go(func() {
			for {
				i := int(number.Add(1))
				if i*len(big) > 60*checkpoint {
					return
				}
				if err := n.write(t.Context(), i, big, false); err != nil {
					t.Error(err)
					return
				}
				if fi, err := os.Stat(n.cfg.Path + "-wal"); err == nil && fi.Size() > largest.Load() {
					largest.Store(fi.Size())
				}
			}
		})
	}
	wg.Wait()
	// 60 checkpoints' worth were written. The bound is generous: the janitor
	// needs a turn on a busy machine.
	if n := largest.Load(); n > 30*checkpoint {
		t.Errorf("the log grew to %d KiB", n>>10)
	}
	eventually(t, "the database file has the data", func() bool {
		n.room.grown.Store(1 << 20)
		poke(n.room.due)
		fi, err := os.Stat(n.cfg.Path)
		return err == nil && fi.Size() > 50*checkpoint
	})
}
