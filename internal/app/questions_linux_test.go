//go:build linux

package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestHZ15_AQuestionOutlivesItsBox: while a person is asked, the box of the real CLI is frozen and
// then stopped, and no box starts for the question, also not when the server is started again. The
// answer decides the call once, although another process of the CLI makes it, and what the turn did
// before is not done again.
func TestHZ15_AQuestionOutlivesItsBox(t *testing.T) {
	for _, k := range []struct {
		name   string
		stop   time.Duration
		tier   holdfast.Tier
		answer string
		again  bool
	}{
		{"frozen", 0, holdfast.TierLive, "allow", false},
		{"stopped", time.Second, holdfast.TierOwn, "allow", false},
		{"stopped and denied", time.Second, holdfast.TierOwn, "deny", false},
		{"stopped, with another server", time.Second, holdfast.TierOwn, "allow", true},
	} {
		t.Run(k.name, func(t *testing.T) {
			cfg := claudeSettings(t)
			cfg.FreezeAfter, cfg.StopAfter = 200*time.Millisecond, k.stop
			cfg.Permissions.Ask = []string{"Bash(echo asked *)"}
			c, stop := serve(t, cfg)
			s := claudeSession(t, c, nil)
			// A CLI that resumes a transcript adds an answer of its own, which the model counts as the
			// script's third step; so the fourth makes the call again.
			const asks = `{"say":"now","tools":[{"tool":"Bash","input":{"command":"echo asked >> f"}}]}`
			say := startTurn(t, c, s.ID, scriptOf(`[{"tool":"Bash","input":{"command":"echo free >> f"}},`+asks+`,{"say":"done"},`+asks+`,{"say":"done"}]`))
			say.until(holdfast.EventApprovalAsked)
			gone := holdfast.EventBoxFrozen
			if k.stop > 0 {
				gone = holdfast.EventBoxStopped
			}
			testkit.Eventually(t, "the box is "+string(gone), func() bool { return count(t, c, s.ID, gone) > 0 })
			boxes := count(t, c, s.ID, holdfast.EventBoxStarted)
			if k.again {
				stop()
				c, _ = serve(t, cfg)
			}
			page, err := c.Approvals(t.Context(), holdfast.ApprovalFilter{Session: string(s.ID), State: string(holdfast.ApprovalPending)})
			if err != nil || len(page.Approvals) != 1 {
				t.Fatalf("%+v %v", page, err)
			}
			if n := count(t, c, s.ID, holdfast.EventBoxStarted); n != boxes {
				t.Errorf("%d boxes were started for the question", n-boxes)
			}
			if _, err := c.AnswerApproval(t.Context(), page.Approvals[0].ID, holdfast.AnswerApproval{Decision: k.answer}); err != nil {
				t.Fatal(err)
			}
			completes(t, c, s.ID)
			want := "free\nasked\n"
			if k.answer == "deny" {
				want = "free\n"
			}
			if got := effects(cfg, s.ID); got != want {
				t.Errorf("effects %q, want %q", got, want)
			}
			if n := count(t, c, s.ID, holdfast.EventApprovalAsked); n != 1 {
				t.Errorf("asked %d times", n)
			}
			if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent 2 messages") {
				t.Errorf("afterwards: %q", end.Result)
			}
			started := logged[holdfast.AgentStarted](t, c, s.ID, holdfast.EventAgentStarted)
			if tier := started[1].Tier; tier != k.tier {
				t.Errorf("the CLI went on with tier %s, want %s", tier, k.tier)
			}
		})
	}
}

// completes waits until the first turn of a session has completed.
func completes(t *testing.T, c *client.Client, id holdfast.SessionID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ev, err := range c.Follow(ctx, id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d %s %.300s", ev.Seq, ev.Type, ev.Data)
		if ev.EndsTurn() {
			if ev.Type != holdfast.EventTurnCompleted {
				t.Errorf("%s %s", ev.Type, ev.Data)
			}
			return
		}
	}
}

func count(t *testing.T, c *client.Client, id holdfast.SessionID, typ holdfast.EventType) int {
	t.Helper()
	return len(logged[map[string]any](t, c, id, typ))
}

// TestHZ15_AnACPQuestionOutlivesItsBox: the same for the real agents of the Agent Client Protocol
// that can load their session.
func TestHZ15_AnACPQuestionOutlivesItsBox(t *testing.T) {
	testkit.Long(t)
	for name, between := range map[string]string{
		// The agent adds an answer of its own when it loads the session.
		"claude-code-acp": `{"say":"never"},`,
		"opencode":        "",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := withRuntimes(t, name)
			cfg.FreezeAfter, cfg.StopAfter = 200*time.Millisecond, time.Second
			cfg.Permissions.Ask = []string{"Bash(echo asked *)"}
			c, _ := serve(t, cfg)
			s := acpSession(t, c, name)
			asks := command(name, "echo asked >> f")
			k := startTurn(t, c, s.ID, scriptOf("["+command(name, "echo free >> f")+","+asks+","+between+asks+`,{"say":"done"}]`))
			answer := func(ev holdfast.Event) {
				id := payload[holdfast.Approval](t, ev).ID
				if _, err := c.AnswerApproval(t.Context(), id, holdfast.AnswerApproval{Decision: "allow"}); err != nil {
					t.Fatal(err)
				}
			}
			ev := k.until(holdfast.EventApprovalAsked)
			testkit.Eventually(t, "the box has stopped", func() bool { return count(t, c, s.ID, holdfast.EventBoxStopped) > 0 })
			answer(ev)
			ev = k.until(holdfast.EventApprovalAsked, holdfast.EventTurnCompleted, holdfast.EventTurnFailed)
			if name == "opencode" && ev.Type == holdfast.EventApprovalAsked {
				// It may report the same call with another input, and then a person is asked about that.
				answer(ev)
				ev = k.until(holdfast.EventTurnCompleted, holdfast.EventTurnFailed)
			}
			if ev.Type != holdfast.EventTurnCompleted {
				t.Errorf("%s %s", ev.Type, ev.Data)
			}
			if got := effects(cfg, s.ID); got != "free\nasked\n" {
				t.Errorf("effects %q", got)
			}
		})
	}
}
