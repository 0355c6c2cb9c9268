package holdfast

import (
	"math"
	"time"
)

// Usage counts the tokens that model calls used up, and their cost.
type Usage struct {
	// InputTokens counts the tokens sent to the model that were neither read from the
	// provider's cache nor written to it.
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
	// CostMicroUSD is the cost in millionths of a dollar, without the calls that
	// UnpricedCalls counts: for their models the server has no price.
	CostMicroUSD  int64 `json:"cost_micro_usd,omitempty"`
	UnpricedCalls int64 `json:"unpriced_calls,omitempty"`
}

// Add returns u plus v, each field added with Sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens: Sum(u.InputTokens, v.InputTokens), OutputTokens: Sum(u.OutputTokens, v.OutputTokens),
		CacheReadTokens: Sum(u.CacheReadTokens, v.CacheReadTokens), CacheWriteTokens: Sum(u.CacheWriteTokens, v.CacheWriteTokens),
		CostMicroUSD: Sum(u.CostMicroUSD, v.CostMicroUSD), UnpricedCalls: Sum(u.UnpricedCalls, v.UnpricedCalls),
	}
}

// Clamp returns u with negative fields set to zero.
func (u Usage) Clamp() Usage { return Usage{}.Add(u) }

// Less returns u minus v, with fields that would be negative set to zero.
func (u Usage) Less(v Usage) Usage {
	u, v = u.Clamp(), v.Clamp()
	return Usage{
		InputTokens: max(u.InputTokens-v.InputTokens, 0), OutputTokens: max(u.OutputTokens-v.OutputTokens, 0),
		CacheReadTokens: max(u.CacheReadTokens-v.CacheReadTokens, 0), CacheWriteTokens: max(u.CacheWriteTokens-v.CacheWriteTokens, 0),
		CostMicroUSD: max(u.CostMicroUSD-v.CostMicroUSD, 0), UnpricedCalls: max(u.UnpricedCalls-v.UnpricedCalls, 0),
	}
}

// Priced returns u with a known cost: amount is in millionths of a dollar and is rounded up. An amount that does not
// fit, or is not a number, becomes the largest int64, which is above every budget.
func (u Usage) Priced(amount float64) Usage {
	u.CostMicroUSD, u.UnpricedCalls = microUSD(amount), 0
	return u
}

// Tokens returns the number of tokens that count towards a budget: input, cached or not,
// and output.
func (u Usage) Tokens() int64 { return Sum(u.Prompt(), u.OutputTokens) }

// Prompt returns the number of input tokens, whether they came from a cache or not.
func (u Usage) Prompt() int64 { return Sum(u.InputTokens, u.CacheReadTokens, u.CacheWriteTokens) }

// Spent is what turns used up: a single turn, or all ended turns of a session.
type Spent struct {
	Usage
	// Calls counts the model's answers, Turns the turns that ended.
	Calls int64 `json:"calls"`
	Turns int64 `json:"turns"`
	// DurationMS is how long the turns ran, without waits for a provider's rate limit or a person's answer.
	DurationMS int64 `json:"duration_ms"`
}

// Add returns s plus t, each field added with Sum.
func (s Spent) Add(t Spent) Spent {
	return Spent{
		Usage: s.Usage.Add(t.Usage), Calls: Sum(s.Calls, t.Calls), Turns: Sum(s.Turns, t.Turns),
		DurationMS: Sum(s.DurationMS, t.DurationMS),
	}
}

// Duration returns DurationMS as a time.Duration: how long the turns ran.
func (s Spent) Duration() time.Duration {
	return time.Duration(min(Sum(s.DurationMS), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// Budget limits what a session or a turn may use up; 0 means no limit. In the budget of a
// turn, Turns limits model calls.
type Budget struct {
	Turns   int64   `json:"turns,omitempty" minimum:"0" doc:"Turns of a session, model calls of a turn; 0: no bound."`
	Tokens  int64   `json:"tokens,omitempty" minimum:"0" doc:"Tokens in and out; 0: no bound."`
	USD     float64 `json:"usd,omitempty" minimum:"0" doc:"Dollars; 0: no bound."`
	Seconds float64 `json:"seconds,omitempty" minimum:"0" doc:"Seconds of running turns; 0: no bound."`
}

// The largest values of a budget. Larger ones are refused as a mistake.
const (
	maxBudgetCount = 1 << 50
	maxBudgetUSD   = 1e9
	maxBudgetTime  = 10 * 365 * 24 * time.Hour
)

// Check returns an error if a field of the budget is negative or absurdly large. name is
// the budget's name in the error.
func (b Budget) Check(name string) error {
	bad := func(field string, value any) error {
		return Errorf(KindInvalid, "budget", "the budget field %s.%s is %v, which is negative or too large", name, field, value).
			WithHint("use 0 for no bound, or a smaller positive number")
	}
	switch {
	case b.Turns < 0 || b.Turns > maxBudgetCount:
		return bad("turns", b.Turns)
	case b.Tokens < 0 || b.Tokens > maxBudgetCount:
		return bad("tokens", b.Tokens)
	case !(b.USD >= 0 && b.USD <= maxBudgetUSD):
		return bad("usd", b.USD)
	case !(b.Seconds >= 0 && b.Seconds <= maxBudgetTime.Seconds()):
		return bad("seconds", b.Seconds)
	}
	return nil
}

// MicroUSD returns the limit on money in millionths of a dollar.
func (b Budget) MicroUSD() int64 { return microUSD(math.Round(b.USD * 1e6)) }

// Duration returns the limit on running time.
func (b Budget) Duration() time.Duration { return time.Duration(b.Seconds * float64(time.Second)) }

// SessionUsage is the answer of GET /v1/sessions/{id}/usage.
type SessionUsage struct {
	// Usage, Turns, Calls and DurationMS cover the turns that have ended; Turns is their
	// number, Calls their model calls.
	Usage      Usage `json:"usage"`
	Turns      int64 `json:"turns"`
	Calls      int64 `json:"calls"`
	DurationMS int64 `json:"duration_ms"`
	// Running is what the running turn used up so far, Reserved what is reserved for its
	// model calls in progress; both are nil if no turn is running.
	Running  *Spent `json:"running,omitempty"`
	Reserved *Usage `json:"reserved,omitempty"`
	// CostUSD is the total cost in dollars; nil if the price of some call is not known.
	CostUSD    *float64 `json:"cost_usd"`
	Budget     *Budget  `json:"budget,omitempty"`
	TurnBudget *Budget  `json:"turn_budget,omitempty"`
}
