package holdfast_test

import (
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestSessionStates walks every pair of the session's state machine, the illegal
// zero value and an unknown state included.
func TestSessionStates(t *testing.T) {
	legal := map[[2]holdfast.Status]bool{
		{"active", "paused"}: true, {"active", "error"}: true, {"active", "ended"}: true,
		{"paused", "starting"}: true, {"paused", "ended"}: true,
		{"error", "starting"}: true, {"error", "ended"}: true,
		{"starting", "active"}: true, {"starting", "error"}: true, {"starting", "ended"}: true,
	}
	all := append(holdfast.Words[holdfast.Status](), "", "frozen")
	if len(all) != 7 {
		t.Fatalf("there are %d states", len(all)-2)
	}
	for _, from := range all {
		for _, to := range all {
			if got := from.CanBecome(to); got != legal[[2]holdfast.Status{from, to}] {
				t.Errorf("%q → %q: %v", from, to, got)
			}
		}
	}
	for _, s := range all {
		got, err := holdfast.Parse[holdfast.Status](string(s))
		known := s != "" && s != "frozen"
		if (err == nil) != known || known && got != s || !known && holdfast.KindOf(err) != holdfast.KindInvalid {
			t.Errorf("ParseStatus(%q): %q, %v", s, got, err)
		}
	}
}

func TestTurnStates(t *testing.T) {
	legal := map[[2]holdfast.TurnStatus]bool{
		{"queued", "running"}: true, {"queued", "interrupted"}: true, {"queued", "failed"}: true,
		{"running", "completed"}: true, {"running", "failed"}: true, {"running", "interrupted"}: true,
	}
	terminal := map[holdfast.TurnStatus]bool{"completed": true, "failed": true, "interrupted": true}
	all := []holdfast.TurnStatus{"queued", "running", "completed", "failed", "interrupted", "", "steered"}
	for _, from := range all {
		if from.Terminal() != terminal[from] {
			t.Errorf("%q terminal: %v", from, from.Terminal())
		}
		for _, to := range all {
			if got := from.CanBecome(to); got != legal[[2]holdfast.TurnStatus{from, to}] {
				t.Errorf("%q → %q: %v", from, to, got)
			}
		}
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string]holdfast.Trust{
		"trusted": "trusted", "full": "trusted", "untrusted": "untrusted", "vault": "untrusted", "sandboxed": "untrusted",
		"": "", "Trusted": "", "none": "", "root": "",
	} {
		if got, err := holdfast.Parse[holdfast.Trust](in); got != want || (err == nil) != (want != "") {
			t.Errorf("trust %q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]holdfast.SendMode{
		"": "queue", "queue": "queue", "steer": "steer", "interrupt": "interrupt", "Queue": "", "stop": "",
	} {
		if got, err := holdfast.Parse[holdfast.SendMode](in); got != want || (err == nil) != (want != "") {
			t.Errorf("send mode %q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto"} {
		if got, err := holdfast.Parse[holdfast.Mode](in); err != nil || string(got) != in {
			t.Errorf("mode %q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "Plan", "bypass", "yolo"} {
		if _, err := holdfast.Parse[holdfast.Mode](in); holdfast.KindOf(err) != holdfast.KindInvalid || holdfast.HintOf(err) == "" {
			t.Errorf("mode %q: %v", in, err)
		}
	}
	if holdfast.Trusted.DefaultMode() != holdfast.ModeDefault || holdfast.Untrusted.DefaultMode() != holdfast.ModeBypassPermissions {
		t.Error("the default modes are not those of boxed and host sessions")
	}
	if got := (holdfast.Usage{InputTokens: 1, OutputTokens: 2}).Add(holdfast.Usage{InputTokens: 10, OutputTokens: 20}); got != (holdfast.Usage{InputTokens: 11, OutputTokens: 22}) {
		t.Errorf("usage adds to %+v", got)
	}
}
