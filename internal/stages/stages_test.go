package stages_test

import (
	"slices"
	"testing"

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
			at          *stages.Staged
			before, own chan struct{}
		}
		open := map[holdfast.BoxID][]run{}
		waiting := map[holdfast.BoxID][]holdfast.SessionID{}
		box := rapid.SampledFrom([]holdfast.BoxID{"w-one", "w-two"})
		t.Repeat(map[string]func(*rapid.T){
			"turn ends": func(t *rapid.T) {
				b := box.Draw(t, "box")
				at, before, own := s.Begin(b)
				var last chan struct{}
				if n := len(open[b]); n > 0 {
					last = open[b][n-1].own
				}
				if before != last {
					t.Fatalf("the stages wait for %v, those before are %v", before, last)
				}
				open[b] = append(open[b], run{at, before, own})
			},
			"stages end": func(t *rapid.T) {
				b := box.Draw(t, "box")
				if len(open[b]) == 0 {
					t.Skip()
				}
				first := open[b][0]
				open[b] = open[b][1:]
				close(first.own)
				got := s.End(b, first.at)
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
