//go:build linux

package app_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// grantAll lets a session ask about a command, and answers with the rule Bash for a scope.
func grantAll(t *testing.T, c *client.Client, id holdfast.SessionID, scope holdfast.ApprovalScope) {
	t.Helper()
	say := startTurn(t, c, id, inBash("true"))
	var asked holdfast.Approval
	if err := say.until(holdfast.EventApprovalAsked).Decode(&asked); err != nil {
		t.Fatal(err)
	}
	answer := holdfast.AnswerApproval{Decision: "allow", Scope: scope, Rules: []string{"Bash"}}
	if _, err := c.AnswerApproval(t.Context(), asked.ID, answer); err != nil {
		t.Fatal(err)
	}
	say.until(holdfast.EventTurnCompleted)
}

// TestGrantsOfABoxStayInIt: what a person allowed to an untrusted session runs nothing on the host unasked (I-48): neither for
// a trusted session of its workspace, nor for itself once it is trusted.
func TestGrantsOfABoxStayInIt(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	member := func(trust string) holdfast.SessionID {
		s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Trust: trust, Mode: "default"}, "")
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	for _, scope := range []holdfast.ApprovalScope{holdfast.ScopeSession, holdfast.ScopeWorkspace} {
		boxed, host := member("untrusted"), member("trusted")
		grantAll(t, c, boxed, scope)
		if turn(t, c, boxed, inBash("true")); count(t, c, boxed, holdfast.EventApprovalAsked) != 1 {
			t.Errorf("%s: the session is asked about what it was granted", scope)
		}
		trusted := "trusted"
		if _, err := c.UpdateSession(t.Context(), boxed, holdfast.UpdateSession{Trust: &trusted}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []holdfast.SessionID{boxed, host} {
			made := filepath.Join(t.TempDir(), "made")
			say := startTurn(t, c, id, inBash("touch "+made))
			if ev := say.until(holdfast.EventApprovalAsked, holdfast.EventToolStarted); ev.Type != holdfast.EventApprovalAsked {
				t.Errorf("%s: a rule of the box runs a command on the host: %s %s", scope, ev.Type, ev.Data)
			}
			if _, err := c.Interrupt(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
}
