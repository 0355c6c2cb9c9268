package plain

import "fmt"

// Kind says what a line is; who shows it chooses its look.
type Kind int

// The kinds of lines.
const (
	// Note is about the session: a tool, the queue, a box.
	Note Kind = iota
	// Added, Removed and Context are lines of a change, of a command or of its output.
	Added
	Removed
	Context
	// Answer is text of the assistant. It may hold several lines, or a piece of one.
	Answer
	// Break ends a line of an answer that a piece has left open.
	Break
	// Own is a message of the user, Thought the model's thinking.
	Own
	Thought
	// Trouble is an error, Hint the way out of it.
	Trouble
	Hint
	// Data is a result that was asked for: of a command such as /status.
	Data
)

// Line is a line to show.
type Line struct {
	Kind Kind
	Text string
}

// Notef is a note on one line, of 200 characters at most.
func Notef(format string, args ...any) Line {
	return Line{Note, Cut(OneLine(fmt.Sprintf(format, args...)), shownWidth)}
}

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
