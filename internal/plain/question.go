package plain

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// MaxAsked is how much of a call's input is shown where it is asked for or answered
// among other things; of a longer one it is said that there is more.
const MaxAsked = 4000

// Question is a question in words: what would run, and why it is asked. Of a longer input
// than most characters it is said that there is more.
func Question(a holdfast.Approval, most int) []Line {
	call := Call(a.Tool, a.Input)
	all, out := 0, []Line(nil)
	tool := OneLine(a.Tool)
	for i, l := range call {
		if i == 0 {
			l.Text = strings.TrimPrefix(strings.TrimPrefix(l.Text, tool), " ")
		}
		r := []rune(l.Text)
		if room := max(0, most-all); len(r) > room {
			l.Text = string(r[:room])
		}
		if i == 0 {
			l.Text = tool + " wants to run: " + l.Text
		}
		if l.Text != "" || len(r) == 0 && all < most {
			out = append(out, l)
		}
		all += len(r)
	}
	if all > most {
		out = append(out, Line{Text: Beginning(most, all, a.ID)})
	}
	return append(out, Line{Text: "asked because " + OneLine(a.Reason)})
}

// Beginning says that only the first most of n characters are shown.
func Beginning(most, n int, id holdfast.ApprovalID) string {
	return fmt.Sprintf("that is the beginning, %d of %d characters; all of it: holdfast approvals show %s", most, n, OneLine(string(id)))
}
