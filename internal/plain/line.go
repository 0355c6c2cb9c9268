package plain

import "fmt"

// Kind is the meaning of a line. The program that shows the line chooses its look.
type Kind int

// The kinds of lines.
const (
	// Note is information about the session, such as a tool, the queue or a box.
	Note Kind = iota
	// Added, Removed and Context are the lines of a change; Context is also a line of a command or
	// of its output.
	Added
	Removed
	Context
	// Answer is text of the assistant: several lines, or a piece of one.
	Answer
	// Break ends the line of an answer if the last piece did not end it.
	Break
	// Own is a message of the user, Thought the model's thinking.
	Own
	Thought
	// Trouble is an error, Hint what to do about it.
	Trouble
	Hint
	// Data is the result of a command such as /status.
	Data
)

// Line is one line of output with its kind; the kinds Answer and Own may have several lines.
type Line struct {
	Kind Kind
	Text string
}

// Notef returns a formatted line of kind Note, of at most 200 characters.
func Notef(format string, args ...any) Line {
	return Line{Note, Cut(OneLine(fmt.Sprintf(format, args...)), shownWidth)}
}

// Count returns a number with its noun, in the singular one or the plural many.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Size returns a number of bytes as text.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
