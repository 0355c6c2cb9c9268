package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestASH3_TextReachesRealAgents: a prompt reaches the agents that run in a box, and
// their model, byte for byte.
func TestASH3_TextReachesRealAgents(t *testing.T) {
	testkit.Long(t)
	const text = "grüße, 世界 🚀 e\u0301 \"quoted\" \\ <b> \t end"
	for runtime, name := range map[string]string{"claude": "claude", "acp:claude-code-acp": "claude-code-acp", "acp:opencode": "opencode"} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, withRuntimes(t, name))
			s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Runtime: runtime}, "")
			if err != nil {
				t.Fatal(err)
			}
			if end := turn(t, c, s.ID, text); !strings.Contains(end.Result, `The last was: "`+text+`"`) {
				t.Errorf("the agent saw %q", end.Result)
			}
		})
	}
}

// TestASH5_AProcessOutlivesThreePauses: in a real box a process of the agent is frozen
// and thawed three times, and is the same one afterwards.
//
// DOC-2, DOC-11.
func TestASH5_AProcessOutlivesThreePauses(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	id := newSession(t, c, "untrusted")
	turn(t, c, id, script(bashCall("echo first > f; (sh -c 'echo $PPID' > pid; until [ -e go ]; do sleep 0.1; done; sh -c 'echo $PPID' > survivor) > /dev/null 2>&1 &")))
	testkit.Eventually(t, "the process runs", func() bool { return execute(t, c, id, "cat pid 2>/dev/null || true") != "" })
	pid := execute(t, c, id, "cat pid")
	for range 3 {
		if _, err := c.PauseSession(t.Context(), id, holdfast.EndSession{}); err != nil {
			t.Fatal(err)
		}
		res, err := c.ResumeSession(t.Context(), id, holdfast.ResumeSession{})
		if err != nil || res.Receipt.Path != "fast" || res.Receipt.Box != "kept" || res.Receipt.Files != holdfast.FilesKept {
			t.Errorf("%+v, %v", res.Receipt, err)
		}
	}
	put(t, c, id, "go", "", 0o644)
	testkit.Eventually(t, "the process ends", func() bool { return execute(t, c, id, "cat survivor 2>/dev/null || true") != "" })
	if got := execute(t, c, id, "cat survivor f"); pid == "" || got != pid+"first\n" {
		t.Errorf("after three pauses %q, the process was %q", got, pid)
	}
}

// TestASH19_InterruptIsPrompt: in a real box an interrupt ends a command that would run
// for a quarter of an hour, keeps its output, and the session goes on.
func TestASH19_InterruptIsPrompt(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	id := newSession(t, c, "untrusted")
	k := startTurn(t, c, id, script(bashCall("echo partial; echo > begun; sleep 900")))
	k.until(holdfast.EventToolStarted)
	testkit.Eventually(t, "the command runs", func() bool { return execute(t, c, id, "ls begun 2>/dev/null || true") != "" })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Interrupt(ctx, id); err != nil {
		t.Fatal(err)
	}
	if typ, end := k.end(); typ != holdfast.EventTurnInterrupted {
		t.Errorf("%s %+v", typ, end)
	}
	f := logged[holdfast.ToolFinished](t, c, id, holdfast.EventToolFinished)
	if len(f) != 1 || f[0].Outcome != holdfast.ExitCanceled || !strings.Contains(f[0].Content, "partial") {
		t.Errorf("%+v", f)
	}
	if end := turn(t, c, id, "and?"); !strings.Contains(end.Result, "You have sent 2 messages") {
		t.Errorf("the next turn: %+v", end)
	}
}
