//go:build linux

package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// numberFrom returns the number in a variable of the environment, or, if that is empty, usual.
func numberFrom(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q", name, text)
	}
	return n
}

// TestHZ15_QuestionsHoldNoBox: many sessions of the real CLI wait for a person, and none of them
// holds a box, nor does one after the server was killed. Each answer decides its call once.
func TestHZ15_QuestionsHoldNoBox(t *testing.T) {
	testkit.Long(t)
	sessions, wait := numberFrom(t, "HOLDFAST_QUESTIONS", 3), numberFrom(t, "HOLDFAST_QUESTIONS_WAIT_SECONDS", 3)
	const atOnce = 6
	r := newClaudeRig(t, "--set", "max_boxes="+strconv.Itoa(atOnce), "--set", "freeze_after=200ms", "--set", "stop_after=1s",
		"--set", "permissions.ask=Bash(echo asked *)")
	boxes := func() (n int) {
		list, err := r.Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.State != holdfast.BoxStopped {
				n++
			}
		}
		return n
	}
	// A CLI that resumes a transcript adds an answer of its own, which the model counts as the
	// script's third step; so the fourth makes the call again.
	const asks = `{"say":"now","tools":[{"tool":"Bash","input":{"command":"echo asked >> effects"}}]}`
	const work = `<script>[{"tool":"Bash","input":{"command":"echo free >> effects"}},` + asks + `,{"say":"done"},` + asks + `,{"say":"done"}]</script>`
	var all []*claudeSession
	var turns []holdfast.TurnID
	for i := range sessions {
		s := r.session(t)
		testkit.Eventually(t, "a box is free", func() bool { return boxes() < atOnce })
		all, turns = append(all, s), append(turns, s.send(work))
		s.until("question", func(ev holdfast.Event) bool { return ev.Type == holdfast.EventApprovalAsked })
		if i%20 == 19 {
			t.Logf("%d sessions wait", i+1)
		}
	}
	testkit.Eventually(t, "no box runs", func() bool { return boxes() == 0 })
	t.Logf("%d questions are open, %d boxes run", sessions, boxes())
	r.kill()
	r.start(t, r.data)
	for _, s := range all {
		s.claudeRig = r
	}
	<-time.After(time.Duration(wait) * time.Second) // nothing may happen meanwhile
	if n := boxes(); n != 0 {
		t.Errorf("%d boxes run after the restart", n)
	}
	page, err := r.Approvals(t.Context(), holdfast.ApprovalFilter{State: string(holdfast.ApprovalPending), Limit: 1000})
	if err != nil || len(page.Approvals) != sessions {
		t.Fatalf("%d questions are open: %v", len(page.Approvals), err)
	}
	denied := map[holdfast.SessionID]bool{}
	for i, a := range page.Approvals {
		decision := "allow"
		if i%4 == 3 {
			decision, denied[a.Session] = "deny", true
		}
		if _, err := r.AnswerApproval(t.Context(), a.ID, holdfast.AnswerApproval{Decision: decision}); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range all {
		typ, end := s.endWithin(turns[i], 15*time.Minute)
		want := "free\nasked\n"
		if denied[s.id] {
			want = "free\n"
		}
		if asked := len(eventsOf[holdfast.Approval](s, holdfast.EventApprovalAsked)); typ != holdfast.EventTurnCompleted || asked != 1 || s.effects() != want {
			t.Errorf("session %d: %s %+v, asked %d times, effects %q, want %q", i, typ, end, asked, s.effects(), want)
		}
	}
}
