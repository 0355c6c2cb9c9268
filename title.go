package holdfast

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTitleOf is how many characters of a message make a title.
const maxTitleOf = 60

// TitleOf is the title that a session without one takes from its first message: the
// first line with words, with single spaces, cut after a word within 60 characters. It
// is empty for a message without a word.
func TitleOf(message string) string {
	for line := range strings.Lines(message) {
		words := strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
		if title := strings.Join(words, " "); title != "" {
			return cutTitle(title)
		}
	}
	return ""
}

func cutTitle(title string) string {
	if utf8.RuneCountInString(title) <= maxTitleOf {
		return title
	}
	runes := []rune(title)[:maxTitleOf-1]
	cut := string(runes)
	if i := strings.LastIndexByte(cut, ' '); i > len(cut)/2 {
		cut = cut[:i]
	}
	return cut + "…"
}
