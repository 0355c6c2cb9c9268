package compose

import (
	"strings"
	"unicode"
)

// Clean returns a text that somebody typed or pasted without the bytes that no model should
// read: control characters other than line ends and tabs, and invalid UTF-8, which becomes
// U+FFFD. Line ends become \n.
func Clean(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(s, "\ufffd"))
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}
