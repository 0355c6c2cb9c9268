package models

import (
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

//go:embed prices.json
var table []byte

// Price is the price of a model, in dollars per million tokens.
type Price struct {
	Model      string  `json:"model"`
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
	// Over is the least number of tokens of a request's prompt for which the price applies; 0 means any number.
	Over int64 `json:"over,omitempty"`
}

// Prices is a table of prices. It is immutable.
type Prices struct {
	// Date and Source are the date and the origin of the built-in prices.
	Date   string  `json:"date"`
	Source string  `json:"source"`
	Models []Price `json:"models"`

	// own are the operator's prices, which override the built-in ones; a name may end in *.
	own []Price
}

// NewPrices returns the built-in prices with the operator's own prices, each as NAME=INPUT/OUTPUT
// or NAME=INPUT/OUTPUT/CACHE_READ/CACHE_WRITE.
func NewPrices(own []string) (*Prices, error) {
	p := &Prices{}
	if err := json.Unmarshal(table, p); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "prices", "the built-in prices are not valid JSON: %w", err)
	}
	for _, s := range own {
		price, err := ParsePrice(s)
		if err != nil {
			return nil, err
		}
		p.own = append(p.own, price)
	}
	return p, nil
}

// ParsePrice parses one price of the configuration. If the text has no prices for the cache, the price of the input
// stands for them.
func ParsePrice(s string) (Price, error) {
	bad := holdfast.Errorf(holdfast.KindInvalid, "prices", "%s is not a valid price of a model", holdfast.Quote(s)).
		WithHint("write dollars per million tokens as openai/my-model=0.5/1.5 or, with a cache, anthropic/m=3/15/0.3/3.75")
	name, value, ok := strings.Cut(s, "=")
	parts := strings.Split(value, "/")
	if !ok || name == "" || len(parts) != 2 && len(parts) != 4 {
		return Price{}, bad
	}
	var n [4]float64
	for i, part := range parts {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil || !(f >= 0 && f <= 1e6) {
			return Price{}, bad
		}
		n[i] = f
	}
	if len(parts) == 2 {
		n[2], n[3] = n[0], n[0]
	}
	return Price{Model: name, Input: n[0], Output: n[1], CacheRead: n[2], CacheWrite: n[3]}, nil
}

// Of returns the usage of a call with its cost set, or marked as unpriced if the model has no
// price.
func (p *Prices) Of(name string, u holdfast.Usage) holdfast.Usage {
	u = u.Clamp()
	price, ok := p.find(name, u.Prompt())
	if !ok {
		u.CostMicroUSD, u.UnpricedCalls = 0, 1
		return u
	}
	// A dollar per million tokens is a millionth of a dollar per token.
	return u.Priced(float64(u.InputTokens)*price.Input + float64(u.OutputTokens)*price.Output +
		float64(u.CacheReadTokens)*price.CacheRead + float64(u.CacheWriteTokens)*price.CacheWrite - 1e-6)
}

func (p *Prices) find(name string, prompt int64) (best Price, ok bool) {
	for _, o := range p.own {
		prefix, wild := strings.CutSuffix(o.Model, "*")
		if o.Model == name || wild && strings.HasPrefix(name, prefix) {
			return o, true
		}
	}
	for _, n := range []string{name, undated(name)} {
		for _, m := range p.Models {
			if m.Model == n && prompt >= m.Over && (!ok || m.Over > best.Over) {
				best, ok = m, true
			}
		}
		if ok {
			break
		}
	}
	return best, ok
}

// undated returns a model's name without the date at its end, if it has one.
func undated(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 || len(name)-i != 9 || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}
