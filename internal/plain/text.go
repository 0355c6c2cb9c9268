package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Texts of agents and models, and titles, are untrusted: on a terminal their control sequences could
// move the cursor, change the title or type into the shell, and a call that a person allows
// could contain invisible characters. OneLine, Prose and Compact therefore spell invisible
// characters out as escapes, as in JSON, instead of dropping them.

// OneLine returns a text on one line, with line breaks and invisible characters spelled out. A run of
// more than maxBlanks white-space characters is replaced by its length.
func OneLine(s string) string {
	var sp speller
	for _, r := range s {
		sp.add(r, spelled(r))
	}
	return sp.String()
}

// Prose returns a text of several lines that is safe for a terminal: control characters and
// characters that reorder a line are spelled out; joiners of scripts and emoji stay.
func Prose(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == 0x200c || r == 0x200d {
			b.WriteRune(r)
		} else {
			b.WriteString(spelled(r))
		}
	}
	return b.String()
}

// Compact returns JSON on one line. Escapes of visible characters are replaced by the characters,
// because an escape would hide them; invisible characters are spelled out.
func Compact(data json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return OneLine(string(data))
	}
	var sp speller
	for doc := b.String(); doc != ""; {
		r, repr, n := jsonRune(doc)
		sp.add(r, repr)
		doc = doc[n:]
	}
	return sp.String()
}

// jsonRune returns the first character of a valid JSON document, the text that shows it, and the
// number of bytes that it takes. In a string the character may be written as an escape.
func jsonRune(doc string) (r rune, repr string, n int) {
	if doc[0] != '\\' {
		r, n = utf8.DecodeRuneInString(doc)
		return r, spelled(r), n
	}
	switch n = 2; doc[1] {
	case 'n', 't', 'r':
		return '\n', doc[:n], n
	case '/':
		return '/', "/", n
	case 'u':
		if r, n = jsonUnit(doc), 6; utf16.IsSurrogate(r) && len(doc) >= 12 && doc[6:8] == `\u` {
			if both := utf16.DecodeRune(r, jsonUnit(doc[6:])); both != unicode.ReplacementChar {
				r, n = both, 12
			}
		}
		if r == '"' || r == '\\' || utf16.IsSurrogate(r) {
			return r, doc[:n], n
		}
		return r, spelled(r), n
	}
	return rune(doc[1]), doc[:n], n
}

func jsonUnit(doc string) rune {
	v, _ := strconv.ParseUint(doc[2:6], 16, 16) // valid JSON has four hexadecimal digits after \u
	return rune(v)
}

// maxBlanks is the longest run of white space that is shown as it is. A longer run, which could push
// the text after it out of sight, is shown as its length.
const maxBlanks = 32

// speller builds a line, in which it replaces long runs of white space by their length.
type speller struct {
	b, run strings.Builder
	blanks int
}

func (sp *speller) add(r rune, repr string) {
	if unicode.IsSpace(r) {
		sp.blanks++
		sp.run.WriteString(repr)
		return
	}
	sp.flush()
	sp.b.WriteString(repr)
}

func (sp *speller) flush() {
	if sp.blanks > maxBlanks {
		fmt.Fprintf(&sp.b, "[%d blanks]", sp.blanks)
	} else {
		sp.b.WriteString(sp.run.String())
	}
	sp.blanks = 0
	sp.run.Reset()
}

func (sp *speller) String() string {
	sp.flush()
	return sp.b.String()
}

// spelled returns the text that shows a character on a line: the character, or an escape if it is
// hidden.
func spelled(r rune) string {
	switch {
	case !hidden(r):
		return string(r)
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// hidden reports whether a character controls a terminal, reorders a line or is invisible.
func hidden(r rune) bool {
	switch {
	case r < 0x7f:
		return r < ' '
	case r == 0x2800 || r == 0x1d159: // a Braille and a musical symbol that look like a space
		return true
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Cut shortens a line to at most n characters, the last of which is then "…".
func Cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// Stripper removes terminal control from the output of programs, which comes in pieces: whole escape
// sequences such as colours, other control characters except line break and tab, and characters
// that reorder a line. It must not be used for text that a person decides on.
type Stripper struct {
	state stripState
}

type stripState int

const (
	ground    stripState = iota
	escape               // the last character was ESC
	sequence             // within a control sequence, until its final byte
	text                 // within a control string such as a title, until BEL or ESC \
	textEnded            // ESC was read within a control string: a backslash would end the string
	charset              // after ESC and a character that selects a character set: one more character follows
)

// Clean returns the next piece of a text without terminal control.
func (st *Stripper) Clean(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if st.keep(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// keep reads the next character, updates the state, and reports whether the character may be shown.
func (st *Stripper) keep(r rune) bool {
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
		case r == '\n': // a line break ends a sequence that is incomplete, so that the next line is not removed
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

// start handles a character outside of any escape sequence, and reports whether it may be shown.
func (st *Stripper) start(r rune) bool {
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
	case Reorders(r):
	default:
		return true
	}
	return false
}

// EscapedJSON makes a JSON document safe for a terminal: it escapes control and invisible characters
// above 0x7e, which JSON allows in strings. The document keeps its meaning.
func EscapedJSON(doc string) string {
	var b strings.Builder
	b.Grow(len(doc))
	for _, r := range doc {
		if r < 0x7f {
			b.WriteRune(r)
		} else {
			b.WriteString(spelled(r))
		}
	}
	return b.String()
}

// Reorders reports whether a character changes the order in which a line's text is displayed.
func Reorders(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// WholeRunes returns the length of b without an incomplete UTF-8 character at its end.
func WholeRunes(b []byte) int {
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
