package account

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

// hostileCounts draws token counts as hostile models and agents report them.
func hostileCounts() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 400), rapid.Int64Range(-400, 400), rapid.Int64(), rapid.Just(int64(math.MaxInt64)), rapid.Just(int64(math.MinInt64)))
}

func hostileUsage(t *rapid.T) holdfast.Usage {
	return holdfast.Usage{
		InputTokens: hostileCounts().Draw(t, "in"), OutputTokens: hostileCounts().Draw(t, "out"),
		CacheReadTokens: hostileCounts().Draw(t, "read"), CostMicroUSD: hostileCounts().Draw(t, "cost"),
	}
}

// openCall is a call in progress in the property test.
type openCall struct {
	most   holdfast.Usage
	settle func(holdfast.Usage, bool)
}

// TestHZ24_ReserveIsMonotone: an admitted call never makes room for another one, a
// settled call gives back exactly what it set aside, nothing is admitted beyond the
// budget, and the recorded usage only grows.
func TestHZ24_ReserveIsMonotone(t *testing.T) {
	a := &Account{now: time.Now, began: time.Now()}
	if _, err := a.Reserve(holdfast.Usage{OutputTokens: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reserve(holdfast.Usage{OutputTokens: math.MaxInt64}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a call that cannot be taken back exactly: %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		budget := holdfast.Budget{
			Tokens: rapid.SampledFrom([]int64{0, 100, 1000, 1 << 50}).Draw(t, "tokens"),
			USD:    rapid.SampledFrom([]float64{0, 0.0005, 1e9}).Draw(t, "usd"),
		}
		a := &Account{now: time.Now, began: time.Now(), session: &budget}
		var open []openCall
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before, spent := a.reserved, a.used
			switch {
			case len(open) > 0 && rapid.Bool().Draw(t, "settle"):
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				open[i].settle(hostileUsage(t), true)
				settled := open[i].most
				open = append(open[:i], open[i+1:]...)
				var left holdfast.Usage
				for _, c := range open {
					left = left.Add(c.most)
				}
				if left != a.reserved {
					t.Fatalf("settling %+v left %+v, the open calls hold %+v", settled, a.reserved, left)
				}
			default:
				most := hostileUsage(t)
				settle, err := a.Reserve(most)
				if err != nil {
					if a.reserved != before {
						t.Fatalf("a refused call changed %+v to %+v", before, a.reserved)
					}
					continue
				}
				open = append(open, openCall{most, settle})
				if a.reserved.Tokens() < before.Tokens() || a.reserved.CostMicroUSD < before.CostMicroUSD {
					t.Fatalf("%+v was admitted and made room: %+v after %+v", most, a.reserved, before)
				}
				all := a.used.Usage.Add(a.reserved)
				if budget.Tokens > 0 && all.Tokens() > budget.Tokens || budget.USD > 0 && all.CostMicroUSD > budget.MicroUSD() {
					t.Fatalf("%+v was admitted beyond %+v: %+v", most, budget, all)
				}
			}
			if a.used.Tokens() < spent.Tokens() || a.used.CostMicroUSD < spent.CostMicroUSD {
				t.Fatalf("what was used up fell from %+v to %+v", spent, a.used)
			}
		}
		for _, c := range open {
			c.settle(holdfast.Usage{}, false)
		}
		if a.reserved != (holdfast.Usage{}) {
			t.Fatalf("after all calls %+v is still set aside", a.reserved)
		}
	})
}

// TestHZ24_NoReservationIsNegative: the finding of the review. Alone and alongside
// others, a call of an absurd size is refused and changes nothing.
func TestHZ24_NoReservationIsNegative(t *testing.T) {
	for name, most := range map[string]holdfast.Usage{
		"wraps around":     {InputTokens: 100, OutputTokens: math.MaxInt64},
		"wraps as a price": {OutputTokens: 1, CostMicroUSD: math.MaxInt64},
		"negative tokens":  {OutputTokens: -50000},
		"negative price":   {CostMicroUSD: math.MinInt64},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Account{now: time.Now, began: time.Now(), session: &holdfast.Budget{Tokens: 10000, USD: 0.01}}
			if _, err := a.Reserve(holdfast.Usage{OutputTokens: 10, CostMicroUSD: 10}); err != nil {
				t.Fatal(err)
			}
			before := a.reserved
			if _, err := a.Reserve(most); err == nil || holdfast.HintOf(err) == "" {
				t.Errorf("admitted, or without a hint: %v", err)
			}
			if _, err := a.Reserve(holdfast.Usage{OutputTokens: 50000}); !holdfast.IsKind(err, holdfast.KindDenied) || a.reserved != before {
				t.Errorf("the next call: %v, %+v is set aside", err, a.reserved)
			}
		})
	}
}
