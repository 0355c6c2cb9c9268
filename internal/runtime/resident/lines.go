package resident

import (
	"bytes"

	"github.com/holdfast-run/holdfast"
)

// Lines is the Stdout of a line protocol whose reader loses no line when it
// dies: a line is taken when Line has returned, and not before.
type Lines struct {
	// From is the offset of the first byte, the exec's StdoutFrom: 0, or what an
	// earlier Line was given as next.
	From int64
	// Most is the longest line; longer ones are too_large. It must fit the box's
	// spool. 0 is 4 MiB.
	Most int
	// Line gets each line without its end, in order, and the offset of the one
	// after it. The line is valid during the call. An error ends the reading.
	Line func(line []byte, next int64) error

	partial []byte
	taken   int64
	err     error
}

const defaultLine = 4 << 20

// Write cuts output into lines.
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
			l.err = holdfast.Errorf(holdfast.KindTooLarge, "box lines", "a line of more than %d bytes begins with %s", most, holdfast.Quote(string(append(l.partial, line...))))
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

// Gap ends the reading: output of a line protocol is not dropped unless the
// box's disk failed.
func (l *Lines) Gap(from, to int64) {
	l.err = holdfast.Errorf(holdfast.KindUnavailable, "box lines", "output from %d to %d is lost", from, to)
}

// Taken implements Taker.
func (l *Lines) Taken() int64 { return max(l.taken, l.From) }

// Err is why the reading ended, if it did.
func (l *Lines) Err() error { return l.err }
