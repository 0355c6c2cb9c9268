package engine_test

import (
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// benchTurns runs turns of one message in as many sessions, one turn after the
// other in each, and reports turns per second.
func benchTurns(b *testing.B, sessions int, text string) {
	m := newMachine(b, nil)
	ids := make([]holdfast.SessionID, sessions)
	for i := range ids {
		ids[i] = m.create(holdfast.CreateSession{})
		m.run(ids[i], text)
	}
	left := atomic.Int64{}
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan error, sessions)
	for _, id := range ids {
		go func() { done <- turns(b, m, id, text, &left) }()
	}
	for range ids {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

func turns(b *testing.B, m *machine, id holdfast.SessionID, text string, left *atomic.Int64) error {
	s, err := m.Session(b.Context(), id)
	if err != nil {
		return err
	}
	r, err := m.Follow(b.Context(), id, s.LastSeq)
	if err != nil {
		return err
	}
	defer r.Close()
	for left.Add(-1) >= 0 {
		sent, err := m.Send(b.Context(), id, holdfast.SendMessage{Text: text})
		if err != nil {
			return err
		}
		for over := false; !over; {
			evs, err := r.Next(b.Context())
			if err != nil {
				return err
			}
			for _, ev := range evs {
				over = over || ev.Turn == sent.Turn.ID && ev.EndsTurn()
			}
		}
	}
	return nil
}

func BenchmarkBashTurn(b *testing.B)   { benchTurns(b, 1, script(bash("true"), say("ok"))) }
func BenchmarkBashTurn30(b *testing.B) { benchTurns(b, 30, script(bash("true"), say("ok"))) }
func BenchmarkTalkTurn(b *testing.B)   { benchTurns(b, 1, "hello") }
func BenchmarkTalkTurn30(b *testing.B) { benchTurns(b, 30, "hello") }
