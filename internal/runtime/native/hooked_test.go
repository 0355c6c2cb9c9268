package native

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// TestWithheldWherever: a message is withheld wherever it stands when the verdict on it comes, and the sizes that were
// counted follow.
func TestWithheldWherever(t *testing.T) {
	verdict := func(seq int64) typed {
		return typed{holdfast.EventHookRan, holdfast.HookRan{Event: "userPromptSubmit", Where: "server", MessageSeq: seq, Decision: "deny"}}
	}
	text := typed{holdfast.EventHookRan, holdfast.HookRan{Event: "sessionStart", Where: "server", Context: []string{"be kind"}}}
	atRisk := holdfast.Notice{Code: holdfast.NoticeFilesAtRisk, Text: "files may be lost", AtRisk: &holdfast.FilesAtRisk{}}
	for name, log := range map[string][]holdfast.Event{
		"behind another hook's text": logOf(user("hunter2"), begins, text, verdict(1), ends(holdfast.EventTurnFailed), user("next"), begins),
		"behind a notice":            logOf(user("hunter2"), begins, atRisk, verdict(1), ends(holdfast.EventTurnFailed), user("next"), begins),
		"behind an answer":           logOf(user("hunter2"), begins, says(1, "use:a"), asks("a"), verdict(1), ends(holdfast.EventTurnFailed), user("next"), begins),
		"behind a placed steering":   logOf(user("hi"), begins, steer("hunter2"), says(3, "ok"), verdict(3), ends(holdfast.EventTurnFailed), user("next"), begins),
		"a steering that waits":      logOf(user("hi"), begins, says(1, "use:a"), asks("a"), steer("hunter2"), verdict(5), ends(holdfast.EventTurnInterrupted), user("next"), begins),
	} {
		c := new(conversation.Conversation)
		for _, e := range log {
			if err := c.Add(e); err != nil {
				t.Fatal(err)
			}
			read(c, nil) // a reader between two events must not see a change later
		}
		at := stands(c, false)
		if got := render(at.Messages); strings.Contains(got, "hunter2") || strings.Count(got, "a hook withheld") != 1 {
			t.Errorf("%s:\n%s", name, got)
		}
		var whole model.Counted
		if whole.Count(at.Messages, at.Counted.Messages); whole != at.Counted {
			t.Errorf("%s: counted %+v, are %+v", name, at.Counted, whole)
		}
	}
}
