package main

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestHZ15_TheNextTurnHearsWhatEnded: a process that an agent left behind ends with its
// idle box. box.stopped names it, but not the CLI that only waited for its next turn, and
// the model is told with the next message.
func TestHZ15_TheNextTurnHearsWhatEnded(t *testing.T) {
	r := newClaudeRig(t, "--set", "freeze_after=100ms", "--set", "stop_after=1s")
	for _, runtime := range []string{"claude", "native"} {
		t.Run(runtime, func(t *testing.T) {
			created, err := r.CreateSession(t.Context(), holdfast.CreateSession{Runtime: runtime, Model: claudeModel, Mode: string(holdfast.ModeBypassPermissions)}, "")
			if err != nil {
				t.Fatal(err)
			}
			s := &claudeSession{r, t, created.ID}
			s.say(`<script>[{"tool":"Bash","input":{"command":"sleep 86400 > /dev/null 2>&1 &"}},{"say":"it runs"}]</script>`)
			var ended []holdfast.BoxEnded
			testkit.Eventually(t, "the idle stop", func() bool {
				ended = eventsOf[holdfast.BoxEnded](s, holdfast.EventBoxStopped)
				return len(ended) == 1
			})
			if !strings.Contains(ended[0].Reason, "idle") || len(ended[0].Processes) != 1 || !strings.HasSuffix(ended[0].Processes[0], " sleep") {
				t.Fatalf("box.stopped %+v", ended[0])
			}
			last := "What of " + string(s.id) + "?"
			if got := s.say(last); !strings.Contains(got, "You have sent 2 messages") {
				t.Errorf("the next turn said %q", got)
			}
			if request := s.asked(last); !strings.Contains(request, "these background processes: \\\""+ended[0].Processes[0]+"\\\"") {
				t.Errorf("the model is not told of %q", ended[0].Processes[0])
			}
		})
	}
}
