package boxd

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdleBoxIsTrimmedOnceAfterEachUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &Server{stopped: make(chan struct{})}
		var n atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.watchIdle(ctx, func() { n.Add(1) })
		}()
		pass := func(d time.Duration, want int) {
			t.Helper()
			wait := time.NewTimer(d)
			<-wait.C
			synctest.Wait()
			if got := n.Load(); got != int64(want) {
				t.Errorf("trimmed %d times, want %d", got, want)
			}
		}
		pass(20*idleAfter, 1)
		s.load.served.Add(1)
		pass(idleAfter+1, 1)
		pass(20*idleAfter, 2)
		s.load.streams.Add(1)
		s.load.served.Add(1)
		pass(20*idleAfter, 2)
		s.load.streams.Add(-1)
		pass(20*idleAfter, 3)
		cancel()
		<-done
	})
}
