package choices

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxTitleOf is the greatest length of a title that is made from a message, in characters.
	maxTitleOf = 60
	// titleIn is how many bytes at the beginning of a message a title is searched in.
	titleIn = 4 << 10
)

// TitleOf returns the title that a session without one gets from its first message: the
// first line with visible text, spaces collapsed, shortened to at most 60 characters.
// It is empty if the first 4 KiB hold no visible text.
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

// cutTitle cuts a shortened title at its last space and appends "…". It cuts in the middle of a word if otherwise half
// of the title or more would be lost.
func cutTitle(title string) string {
	if i := strings.LastIndexByte(title, ' '); i > len(title)/2 {
		title = title[:i]
	}
	return title + "…"
}
