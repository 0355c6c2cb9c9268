package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

func openBench(b testing.TB) *opened {
	b.Helper()
	s, err := open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "holdfast.db"), Warn: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// testID is the n-th session id of a test.
func testID(n int) holdfast.SessionID {
	return holdfast.SessionID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n))
}

func creation(id holdfast.SessionID) journal.Encoded {
	c := journal.NewChange(id)
	c.Create = &journal.Row{Session: holdfast.Session{
		Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, AgentVersion: "sha256:" + holdfast.VersionID(strings.Repeat("0", 64)),
		Trust: holdfast.Untrusted, Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions, Title: "a title",
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated}}
	return journal.Encoded{Change: c, Data: [][]byte{[]byte(`{"agent":"default","trust":"untrusted"}`)}}
}

func appending(id holdfast.SessionID, data []byte, n int) journal.Encoded {
	c := journal.NewChange(id)
	e := journal.Encoded{Change: c}
	for range n {
		e.Events = append(e.Events, journal.Draft{Type: holdfast.EventToolFinished, Turn: "01890a5d-ac96-774b-bcce-b302099a8057"})
		e.Data = append(e.Data, data)
	}
	return e
}

var payload = []byte(`{"text":"` + strings.Repeat("x", 200) + `"}`)

// BenchmarkCommit is the latency of one commit of one event, nothing else running.
func BenchmarkCommit(b *testing.B) {
	s := openBench(b)
	if _, err := s.Commit(b.Context(), creation(testID(1))); err != nil {
		b.Fatal(err)
	}
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		if _, err := s.Commit(b.Context(), appending(testID(1), payload, 1)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	percentiles(b, took)
}

// BenchmarkAppends100Sessions is the gate "durable appends per second, 100
// sessions": ≥ 10,000.
func BenchmarkAppends100Sessions(b *testing.B) { benchAppends(b, 100) }

// BenchmarkAppends8Sessions is the same with little to group.
func BenchmarkAppends8Sessions(b *testing.B) { benchAppends(b, 8) }

func benchAppends(b *testing.B, sessions int) { benchAppendsOf(b, sessions, payload) }

func benchAppendsOf(b *testing.B, sessions int, payload []byte) {
	s := openBench(b)
	for i := range sessions {
		if _, err := s.Commit(b.Context(), creation(testID(i))); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	all := make([][]time.Duration, sessions)
	b.ResetTimer()
	for i := range sessions {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				start := time.Now()
				if _, err := s.Commit(b.Context(), appending(testID(i), payload, 1)); err != nil {
					b.Error(err)
					return
				}
				all[i] = append(all[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
	percentiles(b, slices.Concat(all...))
}

// BenchmarkCreate8 creates sessions, 8 at a time; the gate of the whole server
// is 2,000/s.
func BenchmarkCreate8(b *testing.B) {
	s := openBench(b)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 8 {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if _, err := s.Commit(b.Context(), creation(testID(int(n)))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// BenchmarkList50Of100000 is the gate "list 50 of 100,000 sessions": ≤ 5 ms.
func BenchmarkList50Of100000(b *testing.B) {
	s := openBench(b)
	fill(b, s, 100_000)
	for _, q := range []struct {
		name string
		journal.Query
	}{
		{name: "newest"},
		{"status", journal.Query{Status: holdfast.StatusActive}},
		{"agent", journal.Query{Agent: holdfast.DefaultAgent}},
		{"middle", journal.Query{Cursor: db.EncodeCursor('s', 50_000)}},
		{"text", journal.Query{Text: "TITLE"}},
		{"words", journal.Query{Words: "title"}},
		{"textMiss", journal.Query{Text: "nowhere"}},
		{"idPrefix", journal.Query{IDPart: string(testID(777))}},
		{"idPrefixAll", journal.Query{IDPart: string(testID(777))[:10]}},
	} {
		b.Run(q.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := s.Rows(b.Context(), q.Query); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			percentiles(b, took)
		})
	}
}

// BenchmarkAppendsSearchable is BenchmarkAppends100Sessions with texts that the
// follower indexes meanwhile.
func BenchmarkAppendsSearchable(b *testing.B) {
	payload := []byte(`{"content":"` + strings.Repeat("please write the file ", 10) + `"}`)
	benchAppendsOf(b, 100, payload)
}

// BenchmarkReplay reads a log of 10,000 events.
func BenchmarkReplay(b *testing.B) {
	s := openBench(b)
	if _, err := s.Commit(b.Context(), creation(testID(1))); err != nil {
		b.Fatal(err)
	}
	for range 100 {
		if _, err := s.Commit(b.Context(), appending(testID(1), payload, 100)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		for after := int64(0); after < 10_001; {
			evs, err := s.Events(b.Context(), testID(1), after, 256)
			if err != nil || len(evs) == 0 {
				b.Fatal(len(evs), err)
			}
			after = evs[len(evs)-1].Seq
		}
	}
	b.ReportMetric(10_001*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func fill(b testing.TB, s *opened, n int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := s.Commit(context.WithoutCancel(b.Context()), creation(testID(int(i)))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func percentiles(b *testing.B, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
}
