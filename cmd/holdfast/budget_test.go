package main

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

func TestBudgetFlags(t *testing.T) {
	for in, want := range map[string]holdfast.Budget{
		"none":                                   {},
		"usd=2.5":                                {USD: 2.5},
		"turns=10,tokens=100000,seconds=0.5":     {Turns: 10, Tokens: 100000, Seconds: 0.5},
		"turns=1,turns=2":                        {Turns: 2},
		"tokens=1e6,usd=0":                       {Tokens: 1000000},
		"turns=10,tokens=20,usd=3.25,seconds=60": {Turns: 10, Tokens: 20, USD: 3.25, Seconds: 60},
	} {
		got, err := parseBudget("budget", &in)
		if err != nil || *got != want {
			t.Errorf("%s: %+v %v", in, got, err)
		}
		if text := plain.Budget(got); text != "" {
			if again, err := parseBudget("budget", &text); err != nil || *again != want {
				t.Errorf("%s: %s reads as %+v %v", in, text, again, err)
			}
		}
	}
	for _, in := range []string{
		"", "usd", "usd=", "usd=x", "usd=-1", "turns=1.5", "cents=1", "usd=NaN", "usd=1,", "tokens=1e99", "seconds=Inf",
		"usd=1e30", "usd=1e400", "tokens=NaN", "turns=NaN", "tokens=Inf", "tokens=-Inf", "tokens=9223372036854775807", "tokens=9223372036854775808",
		"tokens=-9223372036854775808", "turns=18446744073709551616", "seconds=-1", "seconds=1e30",
	} {
		if got, err := parseBudget("budget", &in); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %+v %v", in, got, err)
		}
	}
	if got, err := parseBudget("budget", nil); got != nil || err != nil {
		t.Error(got, err)
	}
}
