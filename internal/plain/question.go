package plain

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// MaxAsked is the most characters of a tool call's input that are shown with a question in a list of
// events; of a longer input only the beginning is shown, with a note.
const MaxAsked = 4000

// Question returns an approval as lines: the tool call that would run, and why it is asked. Of an
// input of more than most characters it shows the beginning, and a note that there is more.
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

// Beginning returns the note that only the first most of n characters of an approval are shown.
func Beginning(most, n int, id holdfast.ApprovalID) string {
	return fmt.Sprintf("that is the beginning, %d of %d characters; all of it: holdfast approvals show %s", most, n, OneLine(string(id)))
}
