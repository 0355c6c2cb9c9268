package compose

import (
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// FH-24, FH-27.
func TestEditorMovesByCharacters(t *testing.T) {
	do := map[string]func(*Editor){
		"left": (*Editor).Left, "right": (*Editor).Right, "home": (*Editor).Home, "end": (*Editor).End,
		"wordleft": (*Editor).WordLeft, "wordright": (*Editor).WordRight, "back": (*Editor).Backspace, "del": (*Editor).Delete,
		"delword": (*Editor).DeleteWord, "delwordright": (*Editor).DeleteWordRight, "delleft": (*Editor).DeleteLeft, "delright": (*Editor).DeleteRight,
		"up": func(e *Editor) { e.Up(10, ansi.WcWidth) }, "down": func(e *Editor) { e.Down(10, ansi.WcWidth) },
	}
	for name, c := range map[string]struct{ text, keys, want string }{
		"typed at the cursor":         {"ac", "left", "a|c"},
		"a combined character is one": {"xe\u0301y", "left back", "x|y"},
		"what combines joins":         {"e", "'\u0301 back", "|"},
		"a wide one is one":           {"日本", "back", "日|"},
		"a family is one":             {"a👩‍👩‍👧b", "left back", "a|b"},
		"words":                       {"one two-three", "wordleft wordleft", "one |two-three"},
		"words forward":               {"one two", "home wordright", "one| two"},
		"a word goes":                 {"one two ", "delword", "one |"},
		"the next word goes":          {"one two", "home delwordright", "| two"},
		"lines have ends":             {"one\ntwo", "home back", "one|two"},
		"a line goes":                 {"one\ntwo", "left delleft", "one\n|o"},
		"the rest of a line goes":     {"one\ntwo", "up delright", "one|\ntwo"},
		"up keeps the column":         {"abcdef\nxyz", "left up", "ab|cdef\nxyz"},
		"up in a row of its own":      {"abcdefghijklmno", "up", "abcde|fghijklmno"},
		"down at the end stays":       {"ab", "down", "ab|"},
		"nothing to remove":           {"", "back del delword delleft delright left right", "|"},
	} {
		var e Editor
		e.Set(c.text)
		for _, k := range strings.Fields(c.keys) {
			if text, ok := strings.CutPrefix(k, "'"); ok {
				e.Insert(text)
			} else {
				do[k](&e)
			}
		}
		at := e.at
		var got strings.Builder
		for i, c := range e.cells {
			if i == at {
				got.WriteByte('|')
			}
			got.WriteString(c.text)
		}
		if at == len(e.cells) {
			got.WriteByte('|')
		}
		if got.String() != c.want {
			t.Errorf("%s: %q, not %q", name, got.String(), c.want)
		}
	}
}

func TestLongPastesAreOneCharacter(t *testing.T) {
	long := strings.Repeat("line\n", 30_000)
	var e Editor
	e.Insert("a")
	e.Paste(long)
	e.Insert("b")
	if rows, _, _ := e.Rows(60, ansi.WcWidth); len(rows) != 1 || rows[0] != "a[pasted: 30001 lines, 146.5 KiB]b" {
		t.Errorf("%q", rows)
	}
	if e.Text() != "a"+long+"b" {
		t.Error("the text is another one")
	}
	if rows, _, _ := e.Rows(8, ansi.WcWidth); rows[1] != "[pasted…" {
		t.Errorf("%q", rows)
	}
	e.Left()
	e.Backspace()
	if e.Text() != "ab" {
		t.Errorf("%.40q", e.Text())
	}
}

// FuzzEditor: for any paste the text is the paste without control characters, no row is
// wider than its room, and the cursor is in a row.
func FuzzEditor(f *testing.F) {
	for _, s := range []string{"plain", "日本語 e\u0301 👩‍👩‍👧", "a\x1b[31mb\x07", "tab\there\r\nline", "\u202e\u200b\ufe0f", strings.Repeat("w ", 300)} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, s string, at int) {
		for _, width := range []int{1, 4, 19, 79} {
			for _, m := range []ansi.Method{ansi.WcWidth, ansi.GraphemeWidth} {
				var e Editor
				e.Paste(s)
				if e.Text() != Clean(s) {
					t.Fatalf("%q became %q", s, e.Text())
				}
				e.at = min(max(at, 0), len(e.cells))
				rows, x, y := e.Rows(width, m)
				if y < 0 || y >= len(rows) || x < 0 || x >= max(width, 2) {
					t.Fatalf("%q: the cursor is at %d, %d of %q", s, x, y, rows)
				}
				for _, r := range rows {
					if strings.IndexFunc(r, unicode.IsControl) >= 0 {
						t.Fatalf("%q shows %q", s, r)
					}
					if w := m.StringWidth(r); w > max(width, 6) {
						t.Fatalf("%q: the row %q takes %d of %d columns", s, r, w, width)
					}
				}
			}
		}
	})
}

// FH-27.
func TestNoControlCharacterIsSent(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\nline":             "plain\ttext\nline",
		"a\r\nb\rc":                     "a\nb\nc",
		"\x1b[31mred\x1b[0m\x07\x00end": "[31mred[0mend",
		"\u009b31m\u0085x":              "31mx",
		"bad \xff byte":                 "bad \ufffd byte",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

// FH-24.
func TestHistory(t *testing.T) {
	var h History
	h.Add("mine")
	h.Load([]string{"one", "two", "two", " "})
	got := func(text string, ok bool) string {
		if !ok {
			return "-"
		}
		return text
	}
	for i, c := range []struct{ got, want string }{
		{got(h.Newer()), "-"},
		{got(h.Older("draft")), "mine"},
		{got(h.Older("mine")), "two"},
		{got(h.Older("two")), "one"},
		{got(h.Older("one")), "-"},
		{got(h.Newer()), "two"},
		{got(h.Newer()), "mine"},
		{got(h.Newer()), "draft"},
		{got(h.Newer()), "-"},
	} {
		if c.got != c.want {
			t.Errorf("step %d: %q, not %q", i, c.got, c.want)
		}
	}
	if text, at, ok := h.Find("TW", 3); text != "two" || at != 1 || !ok {
		t.Errorf("%q %d %v", text, at, ok)
	}
	if _, _, ok := h.Find("two", 1); ok {
		t.Error("found twice")
	}
	for range 2 * historyMost {
		h.Add("a")
		h.Add("b")
	}
	if len(h.items) != historyMost {
		t.Errorf("%d messages are kept", len(h.items))
	}
}
