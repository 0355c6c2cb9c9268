package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What agents, models and titles say is untrusted: on a terminal its control
// sequences could move the cursor, change the title or type into the shell.

// line makes a text one safe line.
func line(s string) string {
	var st stripper
	return strings.Join(strings.FieldsFunc(st.clean(s), func(r rune) bool { return r == '\n' }), " ")
}

// cut shortens a line to n characters.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// stripper removes terminal control from a text that comes in pieces: escape
// sequences whole, other control characters except line end and tab, and the
// characters that reorder what stands on a line.
type stripper struct {
	state stripState
}

type stripState int

const (
	ground    stripState = iota
	escape               // after ESC
	sequence             // in a control sequence, until its final byte
	text                 // in a string such as a title, until BEL or ESC \
	textEnded            // after ESC within such a string
	charset              // one more character belongs to the sequence
)

func (st *stripper) clean(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if st.keep(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// keep advances by one character and reports whether it may be shown.
func (st *stripper) keep(r rune) bool {
	switch st.state {
	case escape:
		switch {
		case r == '[':
			st.state = sequence
		case strings.ContainsRune("]PX^_", r):
			st.state = text
		case r >= ' ' && r <= '/':
			st.state = charset
		case r == 0x1b:
		default:
			st.state = ground
		}
		return false
	case sequence:
		switch {
		case r >= '@' && r <= '~':
			st.state = ground
		case r == 0x1b:
			st.state = escape
		case r == '\n': // a cut sequence does not swallow the next line
			st.state = ground
			return true
		}
		return false
	case text:
		switch r {
		case 0x07, 0x9c:
			st.state = ground
		case 0x1b:
			st.state = textEnded
		case '\n':
			st.state = ground
			return true
		}
		return false
	case textEnded:
		if st.state = ground; r != '\\' {
			st.state = escape
			return st.keep(r)
		}
		return false
	case charset:
		st.state = ground
		return false
	}
	return st.start(r)
}

// start handles a character outside of any sequence.
func (st *stripper) start(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return true
	case r == 0x1b:
		st.state = escape
	case r == 0x9b:
		st.state = sequence
	case r == 0x90 || r == 0x98 || r == 0x9d || r == 0x9e || r == 0x9f:
		st.state = text
	case unicode.IsControl(r):
	case reorders(r):
	default:
		return true
	}
	return false
}

// escaped makes a JSON document safe for a terminal: JSON itself lets the control
// characters above 0x7e and those that reorder a line pass. They stand in strings
// only, and mean the same there.
func escaped(doc string) string {
	var b strings.Builder
	for _, r := range doc {
		if r < 0x7f || !unicode.IsControl(r) && !reorders(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}

// reorders: characters that change the order of what stands on a line.
func reorders(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// wholeRunes is the length of b without a character that its end cuts off.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}
