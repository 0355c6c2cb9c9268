package models

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

func choice(t *testing.T, own ...string) *Models {
	t.Helper()
	p, err := NewPrices(own)
	if err != nil {
		t.Fatal(err)
	}
	return New(scripted.New(), p,
		Source{Name: "anthropic", Prefix: "claude-", Missing: "set ANTHROPIC_API_KEY"},
		Source{Name: "openai", Provider: scripted.New(), Default: "m"})
}

func TestNamesHaveProviders(t *testing.T) {
	m := choice(t)
	for _, name := range []string{"scripted", "openai/m", "openai/a/b:7b"} {
		if err := m.Check(name); err != nil {
			t.Error(err)
		}
	}
	for name, hint := range map[string]string{
		"":                "use openai/MODEL, scripted",
		"gpt":             "use openai/MODEL, scripted",
		"openai/":         "use openai/MODEL, scripted",
		"openai/a b":      "use openai/MODEL, scripted",
		"claude-x":        "set ANTHROPIC_API_KEY; usable models: openai/MODEL, scripted",
		"anthropic/m":     "set ANTHROPIC_API_KEY; usable models: openai/MODEL, scripted",
		"scripted/x":      "use openai/MODEL, scripted",
		"OPENAI/m":        "use openai/MODEL, scripted",
		"openai/a\x00":    "use openai/MODEL, scripted",
		"x/" + "openai/m": "use openai/MODEL, scripted",
	} {
		if err := m.Check(name); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) != hint {
			t.Errorf("%q: %v (%s)", name, err, holdfast.HintOf(err))
		}
	}
	for name, want := range map[string]string{"openai/m": "openai", "claude-x": "anthropic", "scripted": ""} {
		if got := m.Provider(name); got != want {
			t.Errorf("%s is asked of %q", name, got)
		}
	}
}

// A session outlives the configuration that its model came from.
func TestLostProviderRefuses(t *testing.T) {
	for _, name := range []string{"claude-x", "gone/m"} {
		n := 0
		for _, err := range choice(t).Stream(t.Context(), model.Request{Model: name}) {
			if n++; !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Error(err)
			}
		}
		if n != 1 {
			t.Error(n)
		}
	}
}

func TestPrices(t *testing.T) {
	m := choice(t, "openai/x=1/2", "openai/free*=0/0", "anthropic/claude-opus-5=1/1/1/1")
	use := holdfast.Usage{InputTokens: 1000, OutputTokens: 100, CacheReadTokens: 10_000, CacheWriteTokens: 2000}
	for name, want := range map[string]int64{
		"scripted":                             0,
		"claude-sonnet-4-5":                    3000 + 1500 + 3000 + 7500,
		"anthropic/claude-sonnet-4-5-20250929": 3000 + 1500 + 3000 + 7500,
		"claude-opus-5":                        13_100,
		"openai/x":                             13_200,
		"openai/free-as-in":                    0,
		"claude-haiku-5-5":                     100 + 50 + 100 + 250,
	} {
		if got := m.Price(name, use); got.CostMicroUSD != want || got.UnpricedCalls != 0 {
			t.Errorf("%s costs %d, want %d (%d)", name, got.CostMicroUSD, want, got.UnpricedCalls)
		}
	}
	// A part of a micro-dollar is one; a long prompt has its own price.
	if got := m.Price("claude-haiku-5-5", holdfast.Usage{InputTokens: 1}); got.CostMicroUSD != 1 {
		t.Error(got)
	}
	if got := m.Price("claude-haiku-5-5", holdfast.Usage{InputTokens: 100_001}); got.CostMicroUSD != 50_001 {
		t.Error(got)
	}
	// What is not in the table is said to be unknown, not free, and not guessed by likeness.
	for _, name := range []string{"openai/y", "claude-sonnet-4-5-x", "claude-sonnet", "anthropic/claude-sonnet-4-5-2025092"} {
		if got := m.Price(name, use); got.CostMicroUSD != 0 || got.UnpricedCalls != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, bad := range []string{"", "x", "x=", "x=1", "x=1/2/3", "=1/2", "x=-1/2", "x=a/b", "x=NaN/1", "x=1/2/3/4/5"} {
		if _, err := ParsePrice(bad); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPriceTableSaysWhereItComesFrom(t *testing.T) {
	p, err := NewPrices(nil)
	if err != nil || p.Date == "" || !strings.HasPrefix(p.Source, "https://") || len(p.Models) < 10 {
		t.Fatal(p, err)
	}
	dec := json.NewDecoder(strings.NewReader(string(table)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&Prices{}); err != nil {
		t.Error(err)
	}
	seen := map[Price]bool{}
	for _, m := range p.Models {
		key := Price{Model: m.Model, Over: m.Over}
		if seen[key] || m.Model != holdfast.ScriptedModel && (m.Input <= 0 || m.Output <= m.Input || m.CacheRead >= m.Input) {
			t.Errorf("%+v", m)
		}
		seen[key] = true
	}
}
