package main

import (
	"encoding/json"
	"strings"
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

// TestApprovalRows: long cells are cut on a terminal, and only there.
func TestApprovalRows(t *testing.T) {
	long := strings.Repeat("x", 500)
	list := []holdfast.Approval{
		{Tool: "Bash", Input: json.RawMessage(`{"command":"` + long + `"}`), Suggestions: []string{"Bash(" + long + ")"}},
		{Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`), Suggestions: []string{"Bash(ls)"}},
	}
	rows, short := approvalRows(list, true)
	for i, row := range rows {
		for _, cell := range row {
			if n := len([]rune(cell)); n > 60 {
				t.Errorf("row %d: a cell of %d characters", i, n)
			}
		}
	}
	if !short || !strings.HasSuffix(rows[0][4], "…") || rows[1][4] != `{"command":"ls"}` {
		t.Errorf("%v %q", short, rows)
	}
	if _, short := approvalRows(list[1:], true); short {
		t.Error("a short row counts as cut")
	}
	if rows, short := approvalRows(list, false); short || !strings.Contains(rows[0][4], long) || !strings.Contains(rows[0][5], long) {
		t.Errorf("without a terminal: %v %q", short, rows)
	}
}
