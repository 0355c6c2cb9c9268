package stages_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// TestSessionsWaitForTheStagesOfTheirScope, whatever turns end and stages run: none is forgotten,
// none is returned before the last stage has ended, and stages run in the order of the turns.
func TestSessionsWaitForTheStagesOfTheirScope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s stages.Stages
		type run struct {
			place *stages.Place
			// ran is closed by the work.
			ran chan struct{}
		}
		open := map[holdfast.BoxID][]run{}
		waiting := map[holdfast.BoxID][]holdfast.SessionID{}
		box := rapid.SampledFrom([]holdfast.BoxID{"w-one", "w-two"})
		t.Repeat(map[string]func(*rapid.T){
			"turn ends": func(t *rapid.T) {
				b := box.Draw(t, "box")
				if (s.Last(b) != nil) != (len(open[b]) > 0) {
					t.Fatalf("%d stages are under way, Last says %v", len(open[b]), s.Last(b))
				}
				open[b] = append(open[b], run{s.Begin(b), make(chan struct{})})
			},
			"stages end": func(t *rapid.T) {
				b := box.Draw(t, "box")
				if len(open[b]) == 0 {
					t.Skip()
				}
				first := open[b][0]
				open[b] = open[b][1:]
				last := s.Last(b)
				got := first.place.Run(func() { close(first.ran) })
				select {
				case <-first.ran:
				default:
					t.Fatal("the work did not run")
				}
				select {
				case <-last:
					if len(open[b]) > 0 {
						t.Fatal("Last ended before the last work")
					}
				default:
					if len(open[b]) == 0 {
						t.Fatal("Last did not end")
					}
				}
				if len(open[b]) > 0 {
					if len(got) > 0 {
						t.Fatalf("%v may start while stages run", got)
					}
					return
				}
				if !slices.Equal(got, waiting[b]) {
					t.Fatalf("%v may start, %v waited", got, waiting[b])
				}
				waiting[b] = nil
			},
			"message comes": func(t *rapid.T) {
				b, id := box.Draw(t, "box"), rapid.SampledFrom([]holdfast.SessionID{"a", "b", "c"}).Draw(t, "session")
				held, first := s.Holds(b, id)
				if held != (len(open[b]) > 0) || first != (held && !slices.Contains(waiting[b], id)) {
					t.Fatalf("held %v, first %v with %d turns in stages and %v waiting", held, first, len(open[b]), waiting[b])
				}
				if first {
					waiting[b] = append(waiting[b], id)
				}
			},
		})
	})
}

// TestAPlaceThatIsGivenUpKeepsTheOrder: work behind a place that was given up without work still waits for the work
// before that place, and so does Wait.
func TestAPlaceThatIsGivenUpKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stages.Stages
		first, second := s.Begin("w"), s.Begin("w")
		second.Run(nil)
		waited, ran := false, false
		go func() {
			s.Wait(context.Background(), "w", time.Hour)
			waited = true
		}()
		third := s.Begin("w")
		go third.Run(func() { ran = true })
		synctest.Wait()
		if waited || ran {
			t.Errorf("before the first work has ended: waited %v, ran %v", waited, ran)
		}
		first.Run(func() {})
		synctest.Wait()
		if !waited || !ran {
			t.Errorf("after the first work has ended: waited %v, ran %v", waited, ran)
		}
	})
}
