package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

func TestApprovalsShowWholeCalls(t *testing.T) {
	long := strings.Repeat("x", 2*plain.MaxAsked)
	a := holdfast.Approval{ID: "01", Tool: "Ba\u009dsh\u009c", Input: json.RawMessage(`{"command":"` + long + `; rm"}`), Reason: "mode"}
	var out strings.Builder
	if err := (&env{stdout: &out}).showApproval(a); err != nil || !strings.Contains(out.String(), long+"; rm") {
		t.Errorf("%.100q %v", out.String(), err)
	}
}

func TestStrippedWriterKeepsCharactersWhole(t *testing.T) {
	const text = "snow ☃ \U0001f9ad \x1b[31mred\x1b[0m \xff end"
	for size := 1; size < 8; size++ {
		var b strings.Builder
		w := &strippedWriter{w: &b}
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatal(n, err)
			}
		}
		if got := b.String(); got != "snow ☃ \U0001f9ad red \ufffd end" {
			t.Errorf("in pieces of %d: %q", size, got)
		}
	}
}

func TestExitCodesAreThoseOfAShell(t *testing.T) {
	for _, c := range []struct {
		res  holdfast.ExecResult
		want int
	}{
		{holdfast.ExecResult{Class: holdfast.ExitOK}, 0},
		{holdfast.ExecResult{Class: holdfast.ExitExit, ExitCode: 3}, 3},
		{holdfast.ExecResult{Class: holdfast.ExitExit, ExitCode: 255}, 255},
		{holdfast.ExecResult{Class: holdfast.ExitTimeout, ExitCode: -1}, 124},
		{holdfast.ExecResult{Class: holdfast.ExitError}, 127},
		{holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGKILL"}, 137},
		{holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGTERM"}, 143},
		{holdfast.ExecResult{Class: holdfast.ExitOOM, ExitCode: -1, Signal: "SIGKILL"}, 137},
		{holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGRTMIN"}, 1},
		{holdfast.ExecResult{Class: holdfast.ExitCanceled, ExitCode: -1}, 1},
	} {
		got := 0
		if err := exitOf(c.res); err != nil {
			got = err.(*exitError).code
		}
		if got != c.want {
			t.Errorf("%+v: %d, not %d", c.res, got, c.want)
		}
	}
}
