package engine_test

import (
	"crypto/rand"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// holdUp is a source of randomness that, while closed, holds the next reader up.
type holdUp struct {
	closed         atomic.Bool
	entered, leave chan struct{}
}

func (g *holdUp) Read(p []byte) (int, error) {
	if g.closed.CompareAndSwap(true, false) {
		g.entered <- struct{}{}
		<-g.leave
	}
	return rand.Read(p)
}

// TestATurnWorksBeforeItsStartIsRecorded: from the moment at which a turn found no stage in its way, a rewind of files by another
// session of the scope is told that it runs. Otherwise both would begin, and the turn would see half-replaced files (I-43).
func TestATurnWorksBeforeItsStartIsRecorded(t *testing.T) {
	p := newPuppet()
	g := &holdUp{entered: make(chan struct{}), leave: make(chan struct{})}
	shared := &together{dir: filepath.Join(t.TempDir(), "sessions")}
	w := newWorld(t, p, func(c *engine.Config) {
		c.Rand, c.Boxes.Scopes, c.After = g, shared, []stages.Stage{quick{}}
	})
	id, other := w.create(holdfast.CreateSession{}), w.create(holdfast.CreateSession{})
	shared.add(id)
	shared.add(other)
	g.closed.Store(true)
	sent := make(chan error)
	go func() {
		_, err := w.Send(t.Context(), other, holdfast.SendMessage{Text: "one"})
		sent <- err
	}()
	<-g.entered
	if got := w.Branching().Working(id); got != other {
		t.Errorf("before its start is recorded, the turn of %q works, want %s", got, other)
	}
	close(g.leave)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	until(t, func() bool { return w.Branching().Working(id) == "" })
	if _, err := w.Send(t.Context(), other, holdfast.SendMessage{}); err == nil {
		t.Error("an empty message was accepted")
	}
	if got := w.Branching().Working(id); got != "" {
		t.Errorf("after a message that was refused, the turn of %s works", got)
	}
}
