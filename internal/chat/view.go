package chat

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// The most rows of output that are shown for a tool, and the most messages of the outbox.
const (
	toolRows    = 3
	outboxShown = 3
)

// most returns how many rows the frame below the conversation may have at most.
func (s *screen) most() int { return max(3, s.height/2) }

// room returns the width that the editor has, in columns.
func (s *screen) room() int { return max(s.look.width-2, 4) }

// blank is the last frame: one row, which the shell's prompt overwrites. For an empty frame, the
// renderer would leave an old row behind.
const blank = " "

// View is called by bubbletea after each message.
func (s *screen) View() tea.View {
	if s.quitting || s.look.width == 0 || s.height == 0 {
		return tea.NewView(blank)
	}
	editor, x, y := s.editorRows()
	foot := append(s.hints(), s.look.paint(faint, s.status()))
	room := s.most() - len(editor) - len(foot)
	head := s.moment()
	if len(head) > max(room, 0) {
		head = head[len(head)-max(room, 0):]
	}
	rows := append(append(head, editor...), foot...)
	v := tea.NewView(strings.Join(rows, "\n"))
	v.Cursor = tea.NewCursor(x, len(head)+y)
	return v
}

// editorRows returns the editor's rows around the cursor, and the column and row of the cursor.
func (s *screen) editorRows() (rows []string, x, y int) {
	text, x, y := s.editor.Rows(s.room(), s.look.method)
	mark := "> "
	if s.question != "" {
		mark = "? "
	}
	for i, r := range text {
		before := "  "
		if i == 0 {
			before = s.look.paint(mine, mark)
		}
		rows = append(rows, before+r)
	}
	most := max(1, s.most()/2)
	if len(rows) > most {
		from := min(max(0, y-most+1), len(rows)-most)
		rows, y = rows[from:from+most], y-from
	}
	return rows, x + 2, y
}

// hints returns the rows below the editor: the keys that answer a question, the text that is
// searched for, or the candidates for completion.
func (s *screen) hints() (rows []string) {
	switch {
	case s.question != "":
		text := "y once · s session · w workspace · e edit the rule · n deny [reason]"
		if s.look.width < 40 {
			text = "y s w e n [reason]"
		}
		rows = s.look.wrap("", text)
	case s.search != nil:
		rows = append(rows, s.look.cut("search: "+plain.OneLine(s.search.text)+"_"))
	case len(s.offers) > 0:
		rows = s.look.wrap("", plain.OneLine(strings.Join(s.offers, "  ")))
	}
	if most := max(1, s.most()/3); len(rows) > most {
		rows = rows[:most]
	}
	for i := range rows {
		rows[i] = s.look.paint(faint, rows[i])
	}
	return rows
}

// tailBytes is the most bytes of an answer that are rendered while it arrives.
const tailBytes = 8 << 10

// moment renders the running turn: the thought, the answer so far, the tools that run, and the
// messages that wait.
func (s *screen) moment() (rows []string) {
	live := &s.t.live
	if live.Thinking != "" {
		rows = append(rows, s.look.paint(faint, s.look.cut(fmt.Sprintf("∴ thinking, %s", plain.Count(len([]rune(live.Thinking)), "character", "characters")))))
		if s.t.Teller.Detail == plain.Verbose {
			rows = append(rows, last(s.look.block("  ", faint, plain.Prose(tail(live.Thinking))), toolRows)...)
		}
	}
	if live.Text != "" {
		rows = append(rows, s.look.markdown(plain.Prose(tail(live.Text)))...)
	}
	if s.t.Teller.Detail != plain.Quiet {
		for _, tool := range live.Tools {
			rows = append(rows, s.tool(tool)...)
		}
	}
	for i, m := range live.Outbox {
		if i == outboxShown {
			rows = append(rows, s.look.paint(faint, fmt.Sprintf("… %d more", len(live.Outbox)-i)))
			break
		}
		where := "waits"
		if m.Turn == "" {
			where = "on its way"
		}
		rows = append(rows, s.look.paint(faint, s.look.cut(where+": "+plain.OneLine(plain.Cut(m.Text, 500)))))
	}
	return rows
}

// tail returns the end of a long text, from the beginning of a line on.
func tail(s string) string {
	if len(s) <= tailBytes {
		return s
	}
	s = clip.Tail(s, tailBytes)
	_, rest, ok := strings.Cut(s, "\n")
	if !ok {
		return s
	}
	return rest
}

func last(rows []string, n int) []string { return rows[max(0, len(rows)-n):] }

// tool draws a tool of the running turn: its title, how long it has run ("waits" before it starts), and the last lines that
// it printed.
func (s *screen) tool(t *Tool) []string {
	clock := "waits"
	if t.Started {
		clock = elapsed(s.now().Sub(t.Began))
	}
	title := s.look.method.Truncate("• "+t.Title, max(8, s.look.width-len(clock)-1), "…")
	rows := []string{s.look.paint(strong, title) + " " + s.look.paint(faint, clock)}
	if text := strings.TrimRight(t.Tail, "\n"); text != "" {
		for _, l := range last(strings.Split(text, "\n"), toolRows) {
			rows = append(rows, s.look.paint(faint, s.look.cut("  "+plain.OneLine(l))))
		}
	}
	return rows
}

// elapsed formats a duration in a few characters.
func elapsed(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// status renders the last row: the clock, the usage, the mode and the model, as many as fit.
func (s *screen) status() string {
	t := s.t
	first := "ready"
	since, running := t.Running()
	switch {
	case t.live.away:
		first = "server away"
	case s.question != "":
		first = "asks"
	case running:
		first = elapsed(s.now().Sub(since))
	case t.pending.waiting > 0:
		first = "sending"
	}
	used := t.Session.Spent.Usage.Add(t.live.usage)
	parts := []string{first, plain.Tokens(used.Tokens()) + " tokens", costOf(used)}
	if t.Create != nil {
		parts = parts[:1]
	}
	for _, p := range []string{string(t.Session.Mode), t.Session.Model} {
		if p != "" {
			parts = append(parts, plain.OneLine(p))
		}
	}
	row := parts[0]
	for _, p := range parts[1:] {
		if longer := row + " · " + p; s.look.method.StringWidth(longer) <= s.look.width {
			row = longer
		}
	}
	return s.look.cut(row)
}

func costOf(u holdfast.Usage) string {
	if u.UnpricedCalls > 0 {
		return "$?"
	}
	return fmt.Sprintf("$%.2f", float64(u.CostMicroUSD)/1e6)
}
