package chat

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-run/holdfast/internal/plain"
)

// look renders text as rows of the screen, with styles or, on a terminal without colours, without.
type look struct {
	color  bool
	width  int
	method ansi.Method
}

// tint is the style of a piece of text.
type tint int

const (
	faint tint = iota
	bad
	good
	strong
	slanted
	code
	mine
)

// paint styles a text of one line.
func (k look) paint(t tint, s string) string {
	if !k.color || s == "" {
		return s
	}
	style := lipgloss.NewStyle().Inline(true)
	switch t {
	case faint:
		style = style.Faint(true)
	case bad:
		style = style.Foreground(lipgloss.Red)
	case good:
		style = style.Foreground(lipgloss.Green)
	case strong:
		style = style.Bold(true)
	case slanted:
		style = style.Italic(true)
	case code:
		style = style.Foreground(lipgloss.Cyan)
	case mine:
		style = style.Foreground(lipgloss.Blue).Bold(true)
	}
	return style.Render(s)
}

// lines renders lines of the conversation as rows of the screen.
func (k look) lines(lines []plain.Line) (rows []string) {
	for _, l := range lines {
		switch l.Kind {
		case plain.Break:
		case plain.Answer:
			rows = append(rows, k.markdown(plain.Prose(l.Text))...)
		case plain.Own:
			rows = append(rows, k.own(plain.Prose(l.Text))...)
		case plain.Added:
			rows = append(rows, k.block("    + ", good, l.Text)...)
		case plain.Removed:
			rows = append(rows, k.block("    - ", bad, l.Text)...)
		case plain.Context:
			rows = append(rows, k.block("      ", faint, l.Text)...)
		case plain.Thought:
			rows = append(rows, k.block("  ∴ ", faint, l.Text)...)
		case plain.Trouble:
			rows = append(rows, k.block("", bad, l.Text)...)
		case plain.Hint, plain.Data:
			rows = append(rows, k.wrap("", l.Text)...)
		default:
			rows = append(rows, k.block("", faint, l.Text)...)
		}
	}
	return rows
}

// own renders a message of the user, with a mark in front of its first row.
func (k look) own(s string) (rows []string) {
	mark := "> "
	for l := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		rows = append(rows, k.block(mark, mine, l)...)
		mark = "  "
	}
	return rows
}

// block renders a text of several lines in one style, with a mark in front of the first row of
// each line.
func (k look) block(mark string, t tint, s string) (rows []string) {
	if k.width < 30 && len(mark) > 2 {
		mark = strings.TrimLeft(mark, " ")
	}
	for l := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		for _, r := range k.wrap(mark, l) {
			rows = append(rows, k.paint(t, r))
		}
	}
	return rows
}

// wrap breaks a line into rows that fit the width; the rows after the first are indented by the
// width of the mark.
func (k look) wrap(mark, s string) []string {
	room := max(k.width-k.method.StringWidth(mark), 4)
	s = strings.ReplaceAll(s, "\t", "    ")
	// Wrap alone leaves some rows one column too wide, so Hardwrap cuts them.
	parts := strings.Split(k.method.Hardwrap(k.method.Wrap(s, room, " "), room, true), "\n")
	for i := range parts {
		if i == 0 {
			parts[i] = mark + parts[i]
		} else {
			parts[i] = strings.Repeat(" ", k.method.StringWidth(mark)) + parts[i]
		}
	}
	return parts
}

// cut shortens a row to the width.
func (k look) cut(s string) string { return k.method.Truncate(s, k.width, "…") }
