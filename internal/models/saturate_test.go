package models

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

// TestHZ24_PricesDoNotWrapAround: more tokens never cost less, and a cost too large to
// count becomes the largest number.
func TestHZ24_PricesDoNotWrapAround(t *testing.T) {
	p, err := NewPrices([]string{"openai/m=2/6", "openai/dear=1000000/1000000"})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Of("openai/m", holdfast.Usage{InputTokens: 100, OutputTokens: math.MaxInt64}); got.CostMicroUSD != math.MaxInt64 {
		t.Errorf("%+v", got)
	}
	if got := p.Of("openai/m", holdfast.Usage{InputTokens: math.MinInt64, OutputTokens: 5}); got.CostMicroUSD != 30 || got.InputTokens != 0 {
		t.Errorf("%+v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		u := holdfast.Usage{
			InputTokens: rapid.Int64().Draw(t, "in"), OutputTokens: rapid.Int64().Draw(t, "out"), CacheReadTokens: rapid.Int64().Draw(t, "read"),
			CacheWriteTokens: rapid.Int64().Draw(t, "write"),
		}
		for _, name := range []string{"openai/m", "openai/dear", "anthropic/claude-sonnet-4-5"} {
			one := p.Of(name, u)
			more := p.Of(name, u.Add(holdfast.Usage{OutputTokens: rapid.Int64().Draw(t, "more")}))
			if one.CostMicroUSD < 0 || more.CostMicroUSD < one.CostMicroUSD || one.Tokens() < 0 {
				t.Fatalf("%s: %+v costs %d, more than it %d", name, u, one.CostMicroUSD, more.CostMicroUSD)
			}
		}
	})
}
