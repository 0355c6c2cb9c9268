package sandbox_test

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestDialerJudgesSilence: an operation ends when its box has given no sign of life for longer
// than Patience. The owner of the connection then says whether the pipe breaks: it does not
// when the owner knows why the box is silent.
func TestDialerJudgesSilence(t *testing.T) {
	for _, breaks := range []bool{true, false} {
		// yamux keeps timers in a sync.Pool, and one made in a bubble may not be used outside
		// of it. Two collections empty a sync.Pool.
		runtime.GC()
		runtime.GC()
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				_, _, _ = wire.ReadFrame(theirs)
				_ = wire.WriteJSON(theirs, wire.FrameHello, good())
				_, _ = io.Copy(io.Discard, theirs) // reads all, answers nothing
			}()
			var asked atomic.Pointer[sandbox.Box]
			d := sandbox.Dialer{Token: 5, Patience: sandbox.Patience{Silence: 20 * time.Second}, Unanswered: func(b *sandbox.Box) bool {
				asked.Store(b)
				return breaks
			}}
			b, err := d.Dial(t.Context(), "w-x", ours)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			began := time.Now()
			_, err = b.Of("a session").Stats(t.Context())
			if took := time.Since(began); took < 20*time.Second || took > 30*time.Second || !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Errorf("%v after %s", err, took)
			}
			if asked.Load() != b {
				t.Error("the owner was not asked with the Box that it has")
			}
			broken := false
			select {
			case <-b.Done():
				broken = true
			default:
			}
			if broken != breaks || errors.Is(err, sandbox.ErrLost) != breaks {
				t.Errorf("the pipe is broken: %v, want %v; %v", broken, breaks, err)
			}
		})
		runtime.GC()
		runtime.GC()
	}
}
