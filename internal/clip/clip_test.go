package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCutsLeaveWholeCharacters(t *testing.T) {
	for _, s := range []string{"", "a", "abcdef", "äöü", "a€b€c", "😀😀", "e\u0301e\u0301"} {
		for n := range len(s) + 2 {
			head, tail := Head(s, n), Tail(s, n)
			if !strings.HasPrefix(s, head) || len(head) > n || !utf8.ValidString(head) || len(s)-len(head) > 3+len(s)-min(n, len(s)) {
				t.Errorf("head %d of %q: %q", n, s, head)
			}
			if !strings.HasSuffix(s, tail) || len(tail) > n || !utf8.ValidString(tail) || len(tail) < min(n, len(s))-3 {
				t.Errorf("tail %d of %q: %q", n, s, tail)
			}
		}
	}
	// In bytes that are not text a cut is anywhere.
	junk := strings.Repeat("\x80", 20)
	if len(Head(junk, 10)) != 10 || len(Tail(junk, 10)) != 10 {
		t.Errorf("%q %q", Head(junk, 10), Tail(junk, 10))
	}
}

func TestCutsSayWhatIsMissing(t *testing.T) {
	long := strings.Repeat("ä", 200)
	for got, want := range map[string]string{
		Dots("abc", 3):               "abc",
		Dots("abcd", 3):              "abc…",
		Dots("äää", 3):               "ä…",
		Counted("abc", 3):            "abc",
		Counted("a\xff", 5):          "a\uFFFD",
		Counted("abcdef", 3):         "abc\n[cut: 3 bytes more]",
		Counted("äää", 3):            "ä\n[cut: 4 bytes more]",
		Middle("abc", 3):             "abc",
		Quoted(nil):                  "",
		Quoted([]string{"a\n", `"`}): `"a\n", "\""`,
		Quoted(strings.Split(strings.Repeat("a", 21), "")): strings.Repeat(`"a", `, 20) + "…",
		Middle(long, 100): strings.Repeat("ä", 18) + " … (346 bytes left out) … " + strings.Repeat("ä", 9),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Middle(long, 1); len(got) > 50 || !strings.Contains(got, "400 bytes") {
		t.Errorf("%q", got)
	}
}
