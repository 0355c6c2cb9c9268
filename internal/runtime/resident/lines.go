package resident

import (
	"bytes"

	"github.com/holdfast-run/holdfast"
)

// Lines is the Stdout writer of a line protocol. A reader that dies loses no line: a line counts
// as taken only when Line has returned.
type Lines struct {
	// From is the offset of the first byte, as in ExecOptions.StdoutFrom: 0, or the next that an
	// earlier call of Line received.
	From int64
	// Most is the most bytes of a line; a longer one ends the reading with KindTooLarge. It must
	// fit the box's spool. 0 means 4 MiB.
	Most int
	// Line receives each line without its newline, in order, and next, the offset of the line after
	// it. The slice is valid during the call only. An error ends the reading.
	Line func(line []byte, next int64) error

	partial []byte
	taken   int64
	err     error
}

const defaultLine = 4 << 20

// Write splits output into lines and calls Line for each.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	l.taken = max(l.taken, l.From)
	for l.err == nil && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		most := l.Most
		if most <= 0 {
			most = defaultLine
		}
		if len(l.partial)+len(line) > most {
			l.err = holdfast.Errorf(holdfast.KindTooLarge, "box lines", "the agent wrote a line of more than %d bytes, which begins with %s", most, holdfast.Quote(string(append(l.partial, line...))))
			break
		}
		if !whole {
			l.partial = append(l.partial, line...)
			break
		}
		if len(l.partial) > 0 {
			line = append(l.partial, line...)
		}
		next := l.taken + int64(len(line)) + 1
		if l.err = l.Line(line, next); l.err == nil {
			l.taken, l.partial = next, l.partial[:0]
		}
		p = rest
	}
	return n, l.err
}

// Gap ends the reading with an error, because output is missing. The box drops output of a line protocol only
// if its disk failed, or while the call is being killed.
func (l *Lines) Gap(from, to int64) {
	l.err = holdfast.Errorf(holdfast.KindUnavailable, "box lines", "the agent's output from byte %d to byte %d is lost", from, to)
}

// Taken implements sandbox.Taker: it returns the offset after the last line that Line accepted.
func (l *Lines) Taken() int64 { return max(l.taken, l.From) }

// Err returns the error that ended the reading, or nil.
func (l *Lines) Err() error { return l.err }
