package main

import (
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestStandingOfAQuestion: a pending question shows when it expires, if it does.
func TestStandingOfAQuestion(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for want, a := range map[string]holdfast.Approval{
		"pending":                           {State: holdfast.ApprovalPending},
		"pending until 2026-01-02 03:04:05": {State: holdfast.ApprovalPending, ExpiresAt: &at},
		"expired":                           {State: holdfast.ApprovalExpired, ExpiresAt: &at},
		"allowed by me":                     {State: holdfast.ApprovalAllowed, AnsweredBy: "me"},
	} {
		if got := standing(a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
