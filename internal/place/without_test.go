package place_test

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// stopped is a driver that calls stop before it stops a box.
type stopped struct {
	*mem.Driver
	stop func()
}

func (d stopped) Stop(ctx context.Context, id holdfast.BoxID) error {
	d.stop()
	return d.Driver.Stop(ctx, id)
}

// TestI43_NoBoxDuringWork: work that replaces the files of a session begins after the claims in progress have ended and the
// box has stopped. Claims that come while the box stops, or later, get a box when the work is done.
func TestI43_NoBoxDuringWork(t *testing.T) {
	// yamux keeps timers in a sync.Pool, and one made in a bubble may not be used outside.
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, func(t *testing.T) {
		ctx, id, dir := context.Background(), named["live"], t.TempDir()
		onStop, ready := func() {}, func() {}
		p := pool.New(pool.Config{
			Driver: stopped{mem.New(mem.Config{}), func() { onStop() }}, Token: 1, FreezeAfter: -1, StopAfter: -1, OnEvent: func(pool.Event) {},
		})
		r := settledRows{&rows{live: map[holdfast.SessionID]holdfast.Status{id: holdfast.StatusActive}}}
		b := place.New(place.Config{
			Dir: dir, Files: present{}, Scopes: place.Private{Dir: filepath.Join(dir, "sessions")},
			Ready:   func(context.Context, journal.Row) error { ready(); return nil },
			Drivers: []place.Driver{{Pool: p, Serves: []holdfast.Trust{holdfast.Untrusted}}},
		}, r)
		if err := b.Start(ctx, false); err != nil {
			t.Fatal(err)
		}
		defer b.Close(ctx, true)
		claim := func(got chan<- *sandbox.Box) {
			hold, err := b.Acquire(ctx, place.Claim{Session: id, Walls: func(context.Context, journal.Row) (w wire.Walls, err error) { return }})
			if err != nil {
				t.Error(err)
				return
			}
			got <- hold.Box
			hold.Release()
		}
		early, late := make(chan *sandbox.Box, 1), make(chan *sandbox.Box, 2)
		pass := make(chan struct{})
		ready = func() { <-pass }
		go claim(early)
		synctest.Wait() // the claim finds the files ready, and goes on later

		onStop = func() {
			onStop = func() {}
			go claim(late)
			synctest.Wait()
		}
		row, err := r.Row(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		began, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- place.Without(ctx, b, row, "test", func() error { close(began); <-finish; return nil })
		}()
		synctest.Wait()
		select {
		case <-began:
			t.Error("the work began while a claim was in progress, which starts a box")
		default:
		}
		close(pass)
		<-began
		<-early
		go claim(late)
		synctest.Wait()
		if p.Live(id.Box()) != nil || len(late) > 0 {
			t.Error("the session got a box during the work")
		}
		close(finish)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if one, other := <-late, <-late; one == nil || other == nil {
			t.Errorf("after the work: %v, %v", one, other)
		}
	})
}
