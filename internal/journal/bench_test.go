package journal

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// BenchmarkDeltas1000Readers is the journal's part of the gate "1,000 SSE readers
// of one session with 20 deltas/s": the time until all readers hold the wire
// form of a delta.
func BenchmarkDeltas1000Readers(b *testing.B) {
	j := New(Config{Store: newMem(sid)})
	const readers = 1000
	var got sync.WaitGroup
	var wg sync.WaitGroup
	for range readers {
		r := follow(b, j, 0)
		wg.Go(func() {
			for {
				frames, err := r.NextFrames(b.Context())
				if err != nil {
					return
				}
				for _, f := range frames {
					if f.Type == "end" {
						return
					}
					f.JSON()
					got.Done()
				}
			}
		})
	}
	for b.Loop() {
		got.Add(readers)
		j.Publish(sid, "mark", "t", holdfast.TextDelta{Text: "some words of an answer"})
		got.Wait()
	}
	j.Publish(sid, "end", "t", nil)
	wg.Wait()
}

// BenchmarkEvent is the encoding of an event: its payload for the log, the whole for its
// readers.
func BenchmarkEvent(b *testing.B) {
	e := holdfast.Event{Session: sid, Seq: 12, Type: holdfast.EventNotice, Turn: "turn", Time: time.Unix(1, 0).UTC()}
	b.ReportAllocs()
	for b.Loop() {
		data, err := marshal(holdfast.Notice{Code: "code", Text: "some words of a notice"})
		if err != nil {
			b.Fatal(err)
		}
		e.Data = data
		encodedFrame(e).JSON()
	}
}

// BenchmarkCommitWithoutReaders is what the journal adds to a commit.
func BenchmarkCommitWithoutReaders(b *testing.B) {
	m := newMem(sid)
	j := New(Config{Store: m})
	for b.Loop() {
		mustCommit(b, j, 1)
		if len(m.logs[sid]) > 10_000 {
			m.logs[sid] = nil
		}
	}
}
