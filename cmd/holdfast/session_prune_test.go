package main

import (
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestDays: an age that does not fit a duration is refused, and never becomes a short one.
func TestDays(t *testing.T) {
	for s, want := range map[string]time.Duration{"": 0, "30d": 720 * time.Hour, "12h": 12 * time.Hour, "36500d": 876000 * time.Hour} {
		if got, err := days(s); err != nil || got != want {
			t.Errorf("%q: %s %v, not %s", s, got, err, want)
		}
	}
	// 213504 days are 2^64 ns and 26 minutes.
	for _, s := range []string{"36501d", "213504d", "-1d", "-213503d", "99999999999999999999d", "d", "x", "-1h"} {
		if got, err := days(s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %s %v", s, got, err)
		}
	}
}
