package chat

import (
	"strings"
	"unicode"
)

// clean is what somebody typed or pasted, without what no model should read: control
// characters except line end and tab, and bytes that are no text. Ends of lines are \n.
func clean(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(s, "\ufffd"))
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}
