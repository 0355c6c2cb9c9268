// Package shellword writes texts as words of a shell's command line, for commands to paste.
//
// Every package may import it; it imports none. Invariant: a shell reads a quoted text as one word, which is the text.
package shellword

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote returns s as one word of a command line for sh, bash and zsh: as it is if that works, else in single quotes.
// Control characters and bytes that are not UTF-8 become escapes in $'…', so that the word can be printed.
func Quote(s string) string {
	switch {
	case s != "" && strings.IndexFunc(s, special) < 0:
		return s
	case utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + s[:size])
		case r == utf8.RuneError || unprintable(r):
			for _, c := range []byte(s[:size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String() + "'"
}

// special reports whether some shell may treat r in an unquoted word as more than a character.
func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@%+:,./_-", r)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
