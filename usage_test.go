package holdfast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// counts draws numbers near the places where sums wrap around.
func counts() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(-3, 1000), rapid.Int64(), rapid.Int64Min(math.MaxInt64-1000), rapid.Int64Max(math.MinInt64+1000))
}

func usages() *rapid.Generator[Usage] {
	return rapid.Custom(func(t *rapid.T) Usage {
		return Usage{
			InputTokens: counts().Draw(t, "in"), OutputTokens: counts().Draw(t, "out"), CacheReadTokens: counts().Draw(t, "read"),
			CacheWriteTokens: counts().Draw(t, "write"), CostMicroUSD: counts().Draw(t, "cost"), UnpricedCalls: counts().Draw(t, "unpriced"),
		}
	})
}

// TestHZ24_CountsSaturate: for any reported counts, a sum is never below its parts nor
// below zero, and the order of the parts does not matter.
func TestHZ24_CountsSaturate(t *testing.T) {
	for _, c := range []struct {
		in   []int64
		want int64
	}{
		{nil, 0},
		{[]int64{1, 2, 3}, 6},
		{[]int64{math.MaxInt64, 1}, math.MaxInt64},
		{[]int64{1, math.MaxInt64}, math.MaxInt64},
		{[]int64{1 << 62, 1 << 62, 1 << 62, 1 << 62}, math.MaxInt64},
		{[]int64{math.MinInt64, 5}, 5},
		{[]int64{-1, -1}, 0},
	} {
		if got := Sum(c.in...); got != c.want {
			t.Errorf("Sum(%d) = %d, want %d", c.in, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := usages().Draw(t, "a"), usages().Draw(t, "b")
		sum := a.Add(b)
		if sum != b.Add(a) || sum != sum.Clamp() {
			t.Fatalf("%+v", sum)
		}
		if sum.Tokens() < max(a.Tokens(), b.Tokens(), 0) || sum.CostMicroUSD < max(a.CostMicroUSD, b.CostMicroUSD) || sum.Tokens() < sum.Prompt() {
			t.Fatalf("the sum %+v is smaller than a part of it", sum)
		}
		if left := sum.Less(b); left.Tokens() > a.Clamp().Tokens() || left != left.Clamp() {
			t.Fatalf("%+v less %+v is %+v", sum, b, left)
		}
		s := Spent{Usage: a, Calls: counts().Draw(t, "calls"), Turns: counts().Draw(t, "turns"), DurationMS: counts().Draw(t, "ms")}
		if all := s.Add(s); all.Calls < 0 || all.Turns < 0 || all.DurationMS < s.DurationMS || all.Duration() < 0 || all.Duration() < s.Duration() {
			t.Fatalf("%+v", all)
		}
	})
}

// An amount of money that does not fit is the largest one, so that no budget admits it.
func TestHZ24_MoneyIsClampedBeforeItIsANumber(t *testing.T) {
	for amount, want := range map[float64]int64{
		0: 0, 0.2: 1, 1: 1, -1e-6: 0, -5: 0, 1e18: 1e18, 1 << 63: math.MaxInt64, 1e300: math.MaxInt64, math.Inf(1): math.MaxInt64,
		math.Inf(-1): 0,
	} {
		if got := microUSD(amount); got != want {
			t.Errorf("microUSD(%g) = %d, want %d", amount, got, want)
		}
	}
	if got := microUSD(math.NaN()); got != math.MaxInt64 {
		t.Errorf("microUSD(NaN) = %d", got)
	}
}

// A bound that is not a number, or is absurd, is refused before it has any effect.
func TestHZ24_AbsurdBudgetsAreRefused(t *testing.T) {
	for _, b := range []Budget{
		{USD: math.NaN()},
		{USD: math.Inf(1)},
		{USD: 1e30},
		{USD: -1},
		{Tokens: -1},
		{Tokens: math.MaxInt64},
		{Turns: math.MinInt64},
		{Turns: math.MaxInt64},
		{Seconds: math.NaN()},
		{Seconds: 1e30},
		{Seconds: -1},
	} {
		if err := b.Check("budget"); !IsKind(err, KindInvalid) || HintOf(err) == "" {
			t.Errorf("%+v: %v", b, err)
		}
	}
	if most := (Budget{USD: maxBudgetUSD}); most.MicroUSD() != 1e15 {
		t.Errorf("%d", most.MicroUSD())
	}
}
