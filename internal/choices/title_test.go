package choices_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/internal/choices"
)

// FH-36.
func TestTitleOf(t *testing.T) {
	for message, want := range map[string]string{
		"":                               "",
		" \n\t\n":                        "",
		"fix the tests":                  "fix the tests",
		"\n  fix\tthe   tests  \nplease": "fix the tests",
		"a\x1b[31mred\x1b[0m b":          "a [31mred [0m b",
		"a\u202eb":                       "a b",
		strings.Repeat("word ", 20):      "word word word word word word word word word word word…",
		strings.Repeat("ß", 60):          strings.Repeat("ß", 60),
		strings.Repeat("ß", 61):          strings.Repeat("ß", 59) + "…",
	} {
		if got := choices.TitleOf(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

func FuzzTitleOf(f *testing.F) {
	f.Add("a b\nc")
	f.Fuzz(func(t *testing.T, message string) {
		title := choices.TitleOf(message)
		if utf8.RuneCountInString(title) > 60 || strings.ContainsAny(title, "\n\x1b") || strings.TrimSpace(title) != title {
			t.Errorf("%q: %q", message, title)
		}
		if utf8.ValidString(message) && !utf8.ValidString(title) {
			t.Errorf("%q: %q is not UTF-8", message, title)
		}
	})
}
