// Package clip cuts texts to a number of bytes, and lists to a number of values.
//
// Every package may import it; it imports the vocabulary only. Invariant: a cut never leaves
// half a character, and says how much it removed wherever a reader could miss it.
package clip

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// At returns the greatest index of s, at most n, at which a character begins, or the length of s if n is not less. In a
// text that is not UTF-8 it may return n itself.
func At(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	for i := n; i >= 0 && i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return n
}

// Head returns the beginning of a text, at most most bytes, and Tail its end. Both return a shorter
// text as it is.
func Head(s string, most int) string { return s[:At(s, most)] }

// Tail returns the end of a text; see Head.
func Tail(s string, most int) string {
	from := max(len(s)-most, 0)
	for i := from; i < from+utf8.UTFMax; i++ {
		if i == len(s) || utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s[from:]
}

// Dots returns s as it is if it has at most most bytes. Of a longer text it returns the beginning with "…" after it.
func Dots(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Head(s, most) + "…"
}

// Counted returns a text in UTF-8, in which U+FFFD replaces invalid bytes. It keeps at most most bytes of the text, and
// appends how many bytes were cut.
func Counted(s string, most int) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= most {
		return s
	}
	head := Head(s, most)
	return head + fmt.Sprintf("\n[cut: %d bytes more]", len(s)-len(head))
}

// Middle cuts the middle out of a text of more than most bytes, and puts in its place the number of bytes that were
// cut. The result is shorter than most, if most is at least 46.
func Middle(s string, most int) string {
	if len(s) <= most {
		return s
	}
	room := max(most-len(" … ( bytes left out) … ")-len("9223372036854775807"), 0)
	head, tail := Head(s, room*2/3), Tail(s, room/3)
	return fmt.Sprintf("%s … (%d bytes left out) … %s", head, len(s)-len(head)-len(tail), tail)
}

// Quoted returns untrusted values in one line, each quoted by holdfast.Quote; of more than 20 values
// the first 20 and "…".
func Quoted(values []string) string {
	const most = 20
	shown := make([]string, 0, most)
	for _, v := range values[:min(len(values), most)] {
		shown = append(shown, holdfast.Quote(v))
	}
	if len(values) > most {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}
