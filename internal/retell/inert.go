package retell

import (
	"strings"
	"unicode"
)

// inert returns a text changed so that it cannot end the block, open another one, look like a
// reminder of the server, or begin a line that looks like a message: all kinds of line ends become
// "\n", such tags lose their angle bracket, such lines get a backslash, and control characters are
// removed.
func inert(text string) string {
	text = strings.Map(oneLineEnd, strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n"))
	text = strings.TrimSpace(text)
	if text == "" {
		return "(nothing)"
	}
	var b strings.Builder
	b.Grow(len(text) + 16)
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
			if looksLikeAMessage(line) {
				b.WriteByte('\\')
			}
		}
		untag(&b, line)
	}
	return b.String()
}

func oneLineEnd(r rune) rune {
	switch r {
	case '\n', '\r', '\v', '\f', '\u0085', '\u2028', '\u2029':
		return '\n'
	case '\t':
		return r
	}
	if unicode.IsControl(r) {
		return -1
	}
	return r
}

// unseen reports whether a character is invisible, so that a reader may skip it.
func unseen(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }

// roleBytes is the longest text in brackets at the beginning of a line that can be mistaken for a
// role.
const roleBytes = 60

func looksLikeAMessage(line string) bool {
	line = strings.TrimLeftFunc(line, unseen)
	role, rest, ok := strings.Cut(line, "]")
	return ok && strings.HasPrefix(role, "[") && len(role) < roleBytes && strings.HasPrefix(strings.TrimLeftFunc(rest, unseen), ":")
}

// untag writes a line, with the opening bracket of tags that have a meaning in the block replaced.
func untag(b *strings.Builder, line string) {
	for {
		before, after, ok := strings.Cut(line, "<")
		b.WriteString(before)
		if !ok {
			return
		}
		if meaningful(after) {
			b.WriteRune('‹')
		} else {
			b.WriteByte('<')
		}
		line = after
	}
}

func meaningful(tag string) bool {
	tag = strings.TrimLeftFunc(tag, func(r rune) bool { return !unicode.IsLetter(r) && r != '<' })
	for _, name := range []string{"conversation", "system"} {
		if len(tag) >= len(name) && strings.EqualFold(tag[:len(name)], name) {
			return true
		}
	}
	return false
}
