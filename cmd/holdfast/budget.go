package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// parseBudget parses a budget such as turns=10,tokens=100000,usd=2.5,seconds=3600. The word none
// gives an empty budget, which bounds nothing; a nil s gives nil.
func parseBudget(flag string, s *string) (*holdfast.Budget, error) {
	if s == nil {
		return nil, nil
	}
	b := &holdfast.Budget{}
	if *s == "none" {
		return b, nil
	}
	for part := range strings.SplitSeq(*s, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.ParseFloat(value, 64)
		// A number too large for int64 is replaced by one that Check refuses.
		whole := int64(min(max(n, -1), 1<<60))
		switch {
		case err != nil:
		case name == "turns" && n == math.Trunc(n):
			b.Turns = whole
		case name == "tokens" && n == math.Trunc(n):
			b.Tokens = whole
		case name == "usd":
			b.USD = n
		case name == "seconds":
			b.Seconds = n
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "budget", "--%s: %s is not a budget bound such as turns=10", flag, holdfast.Quote(part)).
				WithHint("--%s turns=10,tokens=100000,usd=2.5,seconds=3600, or none", flag)
		}
	}
	return b, b.Check(flag)
}

// budgets parses the two budgets of a command: that of the session and that of each turn.
func budgets(session, turn *string) (s, t *holdfast.Budget, err error) {
	if s, err = parseBudget("budget", session); err == nil {
		t, err = parseBudget("turn-budget", turn)
	}
	return s, t, err
}
