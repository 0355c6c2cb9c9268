package lifetime_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/lifetime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *lifetime.Life { return lifetime.New(slog.New(slog.DiscardHandler)) }

func ended(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// TestNothingStartsAfterClose: of many that want to start while the crew closes, those that were
// refused never run, and those that run have ended when Wait returns.
func TestNothingStartsAfterClose(t *testing.T) {
	for range 50 {
		var crew lifetime.Crew
		var ran, taken atomic.Int64
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if crew.Run(func() { ran.Add(1) }) {
					taken.Add(1)
				}
			})
		}
		crew.Close()
		if crew.Run(func() { ran.Add(100) }) {
			t.Fatal("a closed crew took a goroutine")
		}
		callers.Wait()
		if err := crew.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if ran.Load() != taken.Load() {
			t.Fatalf("%d ran of %d that were taken", ran.Load(), taken.Load())
		}
	}
}

// TestWaitReturnsWhenAllHaveEnded: one that starts while somebody waits is waited for as well, and
// nobody waits longer than its context.
func TestWaitReturnsWhenAllHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var crew lifetime.Crew
		first, second := make(chan struct{}), make(chan struct{})
		crew.Run(func() { <-first })
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := crew.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		crew.Run(func() { <-second })
		close(first)
		synctest.Wait()
		if ended(done) {
			t.Error("Wait returned while a goroutine of the crew ran")
		}
		why := errors.New("no patience")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if err := crew.Wait(ctx); !errors.Is(err, why) {
			t.Errorf("Wait: %v, want the cause of its context", err)
		}
		close(second)
		<-done
	})
}

// TestLifeEnds: the end begins once; after CloseAll no crew takes a goroutine, and Wait waits for
// each crew.
func TestLifeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quiet()
		l.Begin(t.Context())
		crews := map[string]*lifetime.Crew{"turns": &l.Turns, "hooks": &l.Hooks, "rest": &l.Rest}
		goOn := make(chan struct{})
		for name, c := range crews {
			if !c.Run(func() { <-goOn }) {
				t.Errorf("%s take no goroutine", name)
			}
		}
		if err := l.Draining(); err != nil || l.Ends() || ended(l.Leaving) {
			t.Errorf("the end has begun: %v", err)
		}
		l.Leave(false)
		l.Leave(false)
		if err := l.Draining(); !holdfast.IsKind(err, holdfast.KindUnavailable) || !l.Ends() || !ended(l.Leaving) {
			t.Errorf("the end has not begun: %v", err)
		}
		if l.Detached() {
			t.Error("turns are let go of without being asked for")
		}
		if l.Leave(true); !l.Detached() || l.Base.Err() != nil {
			t.Error("a detached life has not let go of its turns, or ended their context")
		}
		l.CloseAll()
		for name, c := range crews {
			if c.Run(func() {}) {
				t.Errorf("closed %s took a goroutine", name)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Wait(ctx); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("Wait with goroutines that run: %v", err)
		}
		close(goOn)
		if err := l.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if l.LetGo(); l.Base.Err() == nil {
			t.Error("LetGo did not end the base")
		}
	})
}

// TestEachCrewIsWaitedFor: Wait returns only when the last goroutine of any crew has ended.
func TestEachCrewIsWaitedFor(t *testing.T) {
	for name, pick := range map[string]func(*lifetime.Life) *lifetime.Crew{
		"turns": func(l *lifetime.Life) *lifetime.Crew { return &l.Turns },
		"hooks": func(l *lifetime.Life) *lifetime.Crew { return &l.Hooks },
		"rest":  func(l *lifetime.Life) *lifetime.Crew { return &l.Rest },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := quiet()
			goOn := make(chan struct{})
			var over atomic.Bool
			pick(l).Run(func() { <-goOn; over.Store(true) })
			time.AfterFunc(time.Minute, func() { close(goOn) })
			if err := l.Wait(t.Context()); err != nil || !over.Load() {
				t.Errorf("%s: Wait returned %v before its goroutine had ended", name, err)
			}
		})
	}
}

// TestInsist repeats until the commit succeeds, with pauses that grow to a bound.
func TestInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := quiet()
		l.Begin(t.Context())
		defer l.LetGo()
		var pauses []time.Duration
		last := time.Now()
		tries := 0
		ok := l.Insist("s", "not written", func() error {
			now := time.Now()
			pauses, last = append(pauses, now.Sub(last)), now
			if tries++; tries < 12 {
				return errors.New("full")
			}
			return nil
		})
		if !ok || tries != 12 {
			t.Fatalf("Insist: %t after %d tries", ok, tries)
		}
		for i, p := range pauses[1:] {
			if p < pauses[i] || p == 0 || p > 5*time.Second {
				t.Fatalf("pauses %v", pauses)
			}
		}
	})
}

// TestInsistStops: when the server ends it tries no more, so that the next start finds the log as
// it is.
func TestInsistStops(t *testing.T) {
	for name, end := range map[string]func(*lifetime.Life){
		"leave":  func(l *lifetime.Life) { l.Leave(false) },
		"detach": func(l *lifetime.Life) { l.Leave(true) },
		"let go": func(l *lifetime.Life) { l.LetGo() },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := quiet()
			l.Begin(t.Context())
			defer l.LetGo()
			tries := 0
			done := make(chan bool, 1)
			go func() {
				done <- l.Insist("s", "not written", func() error { tries++; return errors.New("full") })
			}()
			synctest.Wait()
			before := time.Now()
			end(l)
			if ok := <-done; ok || tries != 1 || !time.Now().Equal(before) {
				t.Errorf("%s: %t after %d tries and %v", name, ok, tries, time.Since(before))
			}
			if name != "leave" && l.Insist("s", "not written", func() error { t.Error("tried after the end"); return nil }) {
				t.Errorf("%s: Insist succeeded after the end", name)
			}
		})
	}
}
