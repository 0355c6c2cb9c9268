package stream

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// quiet is a source that has no events.
type quiet struct{ err error }

func (q *quiet) NextFrames(ctx context.Context) ([]*journal.Frame, error) {
	if q.err != nil {
		return nil, q.err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (q *quiet) Ready() bool { return false }
func (q *quiet) Close()      {}

// recorder is a response writer that remembers.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder
	head http.Header
}

func newRecorder() *recorder { return &recorder{head: http.Header{}} }

func (r *recorder) Header() http.Header { return r.head }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Flush()              {}
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

type keyOf struct{}

// newStreams returns Streams for which a request's key stands in its context, and which
// ask the function whether a key was revoked.
func newStreams(revoked func(holdfast.KeyID) bool) *Streams {
	return New(Config{
		Ping: 15 * time.Second, Revoked: revoked, Log: slog.New(slog.DiscardHandler),
		KeyOf: func(ctx context.Context) holdfast.KeyID {
			id, _ := ctx.Value(keyOf{}).(holdfast.KeyID)
			return id
		},
	})
}

// pings checks that a stream of events from src, of which choose chooses some, pings its client every 15 seconds.
func pings(t *testing.T, src Source, choose func(holdfast.Event) Choice) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			newStreams(nil).Send(ctx, w, src, choose)
		}()
		wait := time.NewTimer(46 * time.Second)
		<-wait.C
		synctest.Wait()
		if got := w.String(); got != strings.Repeat(": ping\n\n", 4) { // the first one at once
			t.Errorf("after 46 s: %q", got)
		}
		cancel()
		<-done
	})
}

func TestSSEPingsEvery15Seconds(t *testing.T) {
	pings(t, &quiet{}, func(holdfast.Event) Choice { return Choice{Write: true} })
}

// busy is a source that has one event every ten seconds.
type busy struct{}

func (busy) NextFrames(ctx context.Context) ([]*journal.Frame, error) {
	next := time.NewTimer(10 * time.Second)
	defer next.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-next.C:
		return []*journal.Frame{{Event: holdfast.Event{Seq: 1, Type: holdfast.EventMessageUser}}}, nil
	}
}

func (busy) Ready() bool { return false }
func (busy) Close()      {}

// TestSSEPingsWithoutChosenEvents: events that a stream's filter leaves out are no sign of life for its client.
func TestSSEPingsWithoutChosenEvents(t *testing.T) {
	pings(t, busy{}, func(holdfast.Event) Choice { return Choice{} })
}

func TestSSETellsAnErrorOfTheSource(t *testing.T) {
	s, w := newStreams(nil), newRecorder()
	s.Send(t.Context(), w, &quiet{err: holdfast.Errorf(holdfast.KindUnavailable, "store", "the disk is gone").WithHint("h")}, nil)
	if got := w.String(); !strings.HasPrefix(got, ": ping\n\nevent: error\ndata: {") || !strings.Contains(got, `"kind":"unavailable"`) || !strings.HasSuffix(got, "\n\n") {
		t.Errorf("%q", got)
	}
	w = newRecorder()
	s.Send(t.Context(), w, &quiet{err: io.EOF}, nil)
	if got := w.String(); got != ": ping\n\n" {
		t.Errorf("a closed source: %q", got)
	}
}

// TestOpenAnswersEnd: with their key when it is revoked, all of them with Stop; after
// either a new one ends at once.
func TestOpenAnswersEnd(t *testing.T) {
	gone := map[holdfast.KeyID]bool{}
	s := newStreams(func(id holdfast.KeyID) bool { return gone[id] })
	join := func(key holdfast.KeyID) context.Context {
		ctx, cancel := s.Join(context.WithValue(t.Context(), keyOf{}, key))
		t.Cleanup(cancel)
		return ctx
	}
	owner, first, second := join(""), join("a"), join("b")
	gone["a"] = true
	s.End("a")
	if first.Err() == nil || second.Err() != nil || owner.Err() != nil {
		t.Errorf("after the revocation of a: a %v, b %v, the owner %v", first.Err(), second.Err(), owner.Err())
	}
	// It passed the guard just before the revocation.
	if late := join("a"); late.Err() == nil {
		t.Error("an answer of a revoked key goes on")
	}
	if err := s.Stopped(); err != nil {
		t.Errorf("before the stop: %v", err)
	}
	s.Stop()
	if second.Err() == nil || owner.Err() == nil || join("").Err() == nil {
		t.Error("an answer goes on after the stop")
	}
	if !holdfast.IsKind(s.Stopped(), holdfast.KindUnavailable) {
		t.Errorf("after the stop: %v", s.Stopped())
	}
	w := newRecorder()
	s.Send(owner, w, &quiet{}, nil)
	if !strings.Contains(w.String(), "stopping") {
		t.Errorf("a stream that the stop ended says %q", w.String())
	}
}
