package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// book sells one provider's tokens at a microdollar each.
type book struct{}

func (book) Provider(string) string { return "acme" }

func (book) Price(_ string, u holdfast.Usage) holdfast.Usage {
	u.CostMicroUSD = u.Tokens()
	return u
}

func TestParkedTurnWaitsForItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.loop()
		began := time.Now()
		res, err := l.Run(t.Context(), script(`[{"error":"rate_limit","retry_after":3600,"times":2},{"say":"done"}]`), w.env())
		if err != nil || res.Text != "done" {
			t.Fatal(res, err)
		}
		// Twice an hour, each with up to 30 s of jitter (here half of it).
		if d := time.Since(began); d < 2*time.Hour || d > 2*time.Hour+2*time.Minute {
			t.Errorf("waited %s", d)
		}
		var until []time.Time
		for _, n := range entries[holdfast.Notice](w) {
			if n.Code == loop.NoticeParked {
				until = append(until, *n.Until)
			}
		}
		if len(until) != 2 || until[0].Before(began.Add(time.Hour)) {
			t.Errorf("parked until %v", until)
		}
	})
}

func TestParkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		// A wait beyond what is allowed fails the turn.
		l := w.loop()
		l.Retry.LongestPark = 59 * time.Minute
		if _, err := l.Run(t.Context(), script(`[{"error":"rate_limit","retry_after":3600}]`), w.env()); !holdfast.IsKind(err, holdfast.KindBusy) {
			t.Error(err)
		}
		// A provider that asks for ever ends it too.
		if _, err := w.loop().Run(t.Context(), script(`[{"error":"rate_limit","retry_after":100,"times":99}]`), w.env()); !holdfast.IsKind(err, holdfast.KindBusy) {
			t.Error(err)
		}
		// An interrupt does not wait.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := w.loop().Run(ctx, script(`[{"error":"overloaded","retry_after":3600}]`), w.env()); err != context.DeadlineExceeded || time.Since(began) != time.Minute {
			t.Error(err, time.Since(began))
		}
		// A restart waits for the rest, and does not say that a call was cut off.
		w = newWorld(t)
		c := script(`[{"say":"x"}]`)
		c.Reissue, c.Parked, began = true, time.Now().Add(time.Hour), time.Now()
		if _, err := w.loop().Run(t.Context(), c, w.env()); err != nil || time.Since(began) != time.Hour || w.shape() != "" {
			t.Error(err, time.Since(began), w.shape())
		}
	})
}

func TestModelRequestsAreRecorded(t *testing.T) {
	w := newWorld(t)
	l := w.loop()
	l.Book = book{}
	res, err := l.Run(t.Context(), script(`[{"error":"overloaded"},{"say":"x","usage":{"input_tokens":3,"output_tokens":4}}]`), w.env())
	if err != nil {
		t.Fatal(err)
	}
	got := entries[holdfast.ModelRequest](w)
	if len(got) != 1 || got[0].Status != "overloaded" || got[0].Attempt != 1 || got[0].Provider != "acme" || got[0].Bytes == 0 {
		t.Errorf("%+v", got)
	}
	last, ok := res.Final[0].Data.(holdfast.ModelRequest)
	want := holdfast.Usage{InputTokens: 3, OutputTokens: 4, CostMicroUSD: 7}
	if !ok || last.Status != holdfast.StatusOK || last.Attempt != 2 || last.Usage != want || res.Usage != want {
		t.Errorf("%+v, %+v", last, res.Usage)
	}
	// What fails for good is recorded too, with what it cost.
	w = newWorld(t)
	l = w.loop()
	l.Book = book{}
	l.Provider = provider(func(_ context.Context, y func(model.Chunk, error) bool) {
		y(model.Chunk{}, &model.Failure{Class: "invalid", Message: "no", Usage: holdfast.Usage{InputTokens: 9}})
	})
	res, err = l.Run(t.Context(), script(`[]`), w.env())
	if got := entries[holdfast.ModelRequest](w); !holdfast.IsKind(err, holdfast.KindInvalid) || len(got) != 1 || got[0].Usage.CostMicroUSD != 9 || res.Usage.CostMicroUSD != 9 {
		t.Errorf("%v %+v %+v", err, got, res.Usage)
	}
}
