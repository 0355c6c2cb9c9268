package acpserver

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/policy"
)

const (
	// maxTitle is the most characters of a title, without the note that it is cut.
	maxTitle = 120
	// maxAsked is the most bytes of a call that an editor's user can allow. If a call is longer, the question shows
	// only its first bytes, as many as beginning says.
	maxAsked  = 64 << 10
	beginning = 4 << 10
	// emptyLines is the longest run of empty lines that is shown as it is.
	emptyLines = 3
)

// call is a tool call that the editor shows. Title, location and difference come from the field of the input that the
// policy judges, so that a user who allows a call has seen the one that runs.
type call struct {
	name  string
	input json.RawMessage
	// tool and subject are what the policy judges: the zero values if it does not know the tool or cannot read the input.
	tool    policy.Tool
	subject string
	at      place
}

func (v *view) call(name string, input json.RawMessage) call {
	c := call{name: name, input: input, at: v.place}
	c.tool, c.subject, _ = policy.SubjectOf(name, input, v.known...)
	return c
}

// title describes the call in one line. A title that is cut says how much is missing.
func (c call) title() string {
	line := c.name + " " + c.subject
	switch {
	case len(c.input) == 0, c.tool.Class == policy.ClassPlans:
		line = c.name
	case c.subject == "" || c.tool.Optional:
		line = plain.Call(c.name, c.input)[0].Text
	}
	line = plain.OneLine(line)
	if r := []rune(line); len(r) > maxTitle {
		line = fmt.Sprintf("%s… [%d more characters]", string(r[:maxTitle]), len(r)-maxTitle)
	}
	if line == "" {
		line = "tool"
	}
	return line
}

// shown returns the file that the call is about, and how the call changes it as a difference; both are nil if the
// editor cannot show them. note says what was left out because the editor would not show it faithfully; else it is
// empty.
func (c call) shown() (where []acp.ToolCallLocation, change []acp.ToolCallContent, note string) {
	if c.tool.Subject != policy.SubjectPath {
		return nil, nil, ""
	}
	file := c.at.file(c.subject)
	switch {
	case file == "":
		return nil, nil, ""
	case plain.OneLine(c.subject) != c.subject:
		return nil, nil, fmt.Sprintf("the file and the change of it are left out, because the file's name has hidden characters (an input of %d bytes)",
			len(c.input))
	}
	// Use a map, because field names must match exactly, as they do for the policy and the tools; a struct would match
	// them in any case.
	var in map[string]json.RawMessage
	_ = json.Unmarshal(c.input, &in) // an error cannot happen: the policy has read this input before
	loc := acp.ToolCallLocation{Path: file}
	var offset int
	if json.Unmarshal(in["offset"], &offset) == nil && offset > 0 {
		loc.Line = &offset
	}
	if len(c.input) <= maxInput {
		from, has := text(in["old_string"])
		to, sets := text(in["new_string"])
		all, fills := text(in["content"])
		switch {
		case c.name == "Edit" && has && sets:
			change = []acp.ToolCallContent{acp.ToolDiffContent(file, to, from)}
		case c.name == "Write" && fills:
			change = []acp.ToolCallContent{acp.ToolDiffContent(file, all)}
		}
	}
	return []acp.ToolCallLocation{loc}, change, ""
}

// text decodes a JSON string. It returns false if the value is missing or is not a string.
func text(value json.RawMessage) (string, bool) {
	var s *string
	if json.Unmarshal(value, &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// question returns the text with which an approval of the call is asked. It has the whole call, with hidden characters
// and long runs of blanks spelled out. Only the change of a file may be left out: if the editor shows it, or, with a
// note, if it is too long. question returns false if the call is too long even so: then only its beginning is shown,
// and nobody can allow it in the editor.
func (c call) question(a holdfast.Approval, change []acp.ToolCallContent) (string, bool) {
	lines := plain.Call(c.name, c.input)
	first, below := lines[0].Text, rows(lines[1:])
	tool := plain.OneLine(c.name)
	first = plain.OneLine(tool + " wants to run: " + strings.TrimPrefix(strings.TrimPrefix(first, tool), " "))
	why := "\n" + clip.Middle(plain.OneLine("asked because "+a.Reason), beginning)
	// For an edit, the lines below the first only repeat what changes in the file; leave them out if the editor shows the
	// change.
	if edit := c.tool.Class == policy.ClassEdits; edit && faithful(change) {
		below = ""
	} else if edit && len(below) > maxAsked-min(len(first), maxAsked) {
		below = fmt.Sprintf("\n  [%d bytes of the change are left out]", len(below))
	}
	all := first + below
	if len(all) <= maxAsked {
		return all + why, true
	}
	id := plain.OneLine(string(a.ID))
	head := clip.Head(all, beginning)
	return head + fmt.Sprintf("\nthat is the beginning, %d of %d bytes. The call is too long to be allowed in the editor."+
		"\nto see all of it: holdfast approvals show %s\nto allow it: holdfast approvals allow %[3]s", len(head), len(all), id) + why, false
}

// marks are the texts at the beginning of shown lines, by the lines' kind.
var marks = map[plain.Kind]string{plain.Added: "+ ", plain.Removed: "- ", plain.Context: "  "}

// rows returns lines as text, each after a line break and a mark of its kind, so that none is taken for a line of
// Holdfast's. Long runs of empty lines, which could push the text after them out of sight, are shown as their length.
func rows(lines []plain.Line) string {
	var b strings.Builder
	for i := 0; i < len(lines); {
		n := 0
		for i+n < len(lines) && strings.TrimSpace(lines[i+n].Text) == "" {
			n++
		}
		if n > emptyLines {
			fmt.Fprintf(&b, "\n  [%d empty lines]", n)
			i += n
			continue
		}
		b.WriteString("\n" + plain.OneLine(marks[lines[i].Kind]+lines[i].Text))
		i++
	}
	return b.String()
}

// faithful reports whether a difference shows a change as it is, also in an editor that shows hidden characters as nothing.
func faithful(change []acp.ToolCallContent) bool {
	for _, c := range change {
		texts := []string{c.Diff.NewText}
		if c.Diff.OldText != nil {
			texts = append(texts, *c.Diff.OldText)
		}
		for l := range strings.Lines(strings.ReplaceAll(strings.Join(texts, "\n"), "\t", " ")) {
			if l = strings.TrimRight(l, "\r\n"); plain.OneLine(l) != l {
				return false
			}
		}
	}
	return len(change) > 0
}

// fenced returns a text as a block of code: editors show text as Markdown, which hides comments and the targets of links.
func fenced(text string) string {
	longest, run := 0, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", max(3, longest+1))
	return fence + "\n" + text + "\n" + fence
}

// leftOut returns a note that an input is not part of an update.
func leftOut(input json.RawMessage) string {
	return fmt.Sprintf("the call's input of %d bytes is left out here", len(input))
}
