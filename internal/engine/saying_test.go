package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// TestDeltasSayWhereTheyAre: each delta has its place in the answer; a recorded
// answer and a void one begin the next.
func TestDeltasSayWhereTheyAre(t *testing.T) {
	p := newPuppet()
	ready, heard := make(chan struct{}), make(chan struct{})
	p.box = func(ctx context.Context, h runtime.Host) error {
		<-ready
		say := func(typ holdfast.EventType, texts ...string) {
			for _, s := range texts {
				h.Delta(typ, holdfast.TextDelta{Text: s, At: 99})
			}
		}
		record := func(typ holdfast.EventType, data any) {
			if _, err := h.Keep(ctx, nil, journal.Draft{Type: typ, Data: data}); err != nil {
				panic(err)
			}
		}
		say(holdfast.DeltaThinking, "hm", "m")
		say(holdfast.DeltaText, "Wr", "ong")
		record(holdfast.EventNotice, holdfast.Notice{Code: "other"})
		say(holdfast.DeltaText, "!")
		record(holdfast.EventNotice, holdfast.Notice{Code: holdfast.NoticeVoid})
		say(holdfast.DeltaText, "größe", "r")
		say(holdfast.DeltaThinking, "x")
		record(holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "größer"}}})
		say(holdfast.DeltaText, "next")
		<-heard
		return nil
	}
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	r, err := w.journal.Follow(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	turn := w.send(id, "box")
	close(ready)
	// Deltas may arrive joined: each byte's place counts.
	places := map[holdfast.EventType]*strings.Builder{holdfast.DeltaText: {}, holdfast.DeltaThinking: {}}
	for !strings.HasSuffix(places[holdfast.DeltaText].String(), "3t ") {
		evs, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evs {
			var d holdfast.TextDelta
			if b := places[e.Type]; b != nil {
				if err := e.Decode(&d); err != nil {
					t.Fatal(err)
				}
				for i := range d.Text {
					fmt.Fprintf(b, "%d%c ", d.At+int64(i), []rune(d.Text[i:])[0])
				}
			}
		}
	}
	close(heard)
	w.ended(id, turn.ID)
	if got, want := places[holdfast.DeltaText].String(), "0W 1r 2o 3n 4g 5! 0g 1r 2ö 4ß 6e 7r 0n 1e 2x 3t "; got != want {
		t.Errorf("text  %s\nwant  %s", got, want)
	}
	if got, want := places[holdfast.DeltaThinking].String(), "0h 1m 2m 0x "; got != want {
		t.Errorf("thinking %s, not %s", got, want)
	}
}
