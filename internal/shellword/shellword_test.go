package shellword

import (
	"os/exec"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"": "''", "notes.md": "notes.md", "@last": "@last", "01a1:src/a_b-c.txt": "01a1:src/a_b-c.txt", "--resume": "--resume",
		"Größe": "Größe", "my proj": "'my proj'", "it's": `'it'\''s'`, "~/x": "'~/x'", "a=b": "'a=b'", "$HOME": "'$HOME'",
		"#3": "'#3'", "a!b": "'a!b'", "[::1]:1": "'[::1]:1'", "a\nb": `$'a\012b'`, "\x1b[31m": `$'\033[31m'`,
		"\xff'\\": `$'\377\'\\'`,
	} {
		if got := Quote(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

// FuzzQuote: a shell reads the word as the text, and a terminal can print it.
func FuzzQuote(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("there is no bash")
	}
	for _, s := range []string{"", "my proj", "it's $HOME `id`", "*?[a]{b,c}~", "a\nb\t\x1b", "\xff\xfe'\\1", "\u202e\u2028x", "\uFFFD", "!!", "a\\", "=x", "\u00a0", "٣"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			t.Skip("no argument of a program holds a NUL")
		}
		word := Quote(s)
		if !utf8.ValidString(word) || strings.IndexFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("%q: %q cannot be printed", s, word)
		}
		out, err := exec.Command(bash, "--norc", "-c", "printf %s. "+word).Output()
		if err != nil || string(out) != s+"." {
			t.Errorf("%q: bash reads %s as %q, %v", s, word, out, err)
		}
	})
}
