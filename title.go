package holdfast

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxTitleOf is how many characters of a message make a title.
	maxTitleOf = 60
	// titleIn is how much of a message is looked at for one, in bytes.
	titleIn = 4 << 10
)

// TitleOf is the title that a session without one takes from its first message: the
// first line with words, with single spaces, cut after a word within 60 characters. It
// is empty if the first 4 KiB have no word.
func TitleOf(message string) string {
	var title []rune
	gap := false
	for _, r := range message[:min(len(message), titleIn)] {
		switch {
		case r == '\n' && len(title) > 0:
			return string(title)
		case unicode.IsSpace(r) || !unicode.IsPrint(r) || r == utf8.RuneError:
			gap = len(title) > 0
		default:
			if gap {
				title, gap = append(title, ' '), false
			}
			title = append(title, r)
		}
		if len(title) > maxTitleOf {
			return cutTitle(string(title[:maxTitleOf-1]))
		}
	}
	return string(title)
}

// cutTitle ends what is left of a title with its last whole word, unless that is half of
// it.
func cutTitle(title string) string {
	if i := strings.LastIndexByte(title, ' '); i > len(title)/2 {
		title = title[:i]
	}
	return title + "…"
}
