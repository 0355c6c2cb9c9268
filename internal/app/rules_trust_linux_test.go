//go:build linux

package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
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

// TestGrantsOfABoxStayInIt: what a person allowed to an untrusted session runs nothing on the host unasked (I-48):
// neither for a trusted session of its workspace, nor for itself once it is trusted.
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

// TestEditsOnTheHostAskAtLinks: a symlink that an untrusted session made in the workspace lets no edit of a trusted one
// out of it unasked (I-49), in a mode that allows edits in the workspace.
func TestEditsOnTheHostAskAtLinks(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	boxed := sessionsOf(t, c, "site", 1)[0]
	outside := testkit.BaseDir(t)
	if err := os.Chmod(outside, 0o777); err != nil { //nolint:gosec // the owner of the workspace is another user
		t.Fatal(err)
	}
	if res, out := run(t, c, boxed, "ln -s "+outside+"/file file; ln -s "+outside+" sub; mkdir real; ln -s real in"); res.ExitCode != 0 {
		t.Fatal(out)
	}
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Trust: "trusted", Mode: "acceptEdits"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		name string
		want holdfast.EventType
	}{
		{"in/a", holdfast.EventToolStarted},
		{"file", holdfast.EventApprovalAsked},
		{"sub/new", holdfast.EventApprovalAsked},
		{"in/b", holdfast.EventToolStarted},
	} {
		say := startTurn(t, c, s.ID, script(fmt.Sprintf(`{"tool":"Write","input":{"file_path":%q,"content":"new"}}`, k.name)))
		if ev := say.until(holdfast.EventApprovalAsked, holdfast.EventToolStarted); ev.Type != k.want {
			t.Errorf("a write to %s: %s, want %s", k.name, ev.Type, k.want)
		}
		if k.want == holdfast.EventToolStarted {
			say.until(holdfast.EventTurnCompleted)
		} else if _, err := c.Interrupt(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("outside of the workspace are %v, %v", list, err)
	}
}
