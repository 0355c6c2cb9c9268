package main

import (
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-run/holdfast"
)

func TestStripperRemovesTerminalControl(t *testing.T) {
	for in, want := range map[string]string{
		"plain ☃ text\n\ttab":               "plain ☃ text\n\ttab",
		"\x1b[31mred\x1b[0m":                "red",
		"\x1b]0;title\x07after":             "after",
		"\x1b]52;c;aGk=\x1b\\after":         "after",
		"\x1bPq#0\x1b\\x":                   "x",
		"a\x1b(Bb":                          "ab",
		"a\x1bMb":                           "ab",
		"a\x1b\x1b[2Jb":                     "ab",
		"\u009b31mx\u009d0;t\u009cy":        "xy",
		"a\rb\bc\x00d\x7fe\x07":             "abcde",
		"\u202eevil\u2066":                  "evil",
		"\x1b[31":                           "",
		"\x1b[31\nnext":                     "\nnext",
		"\x1b]0;never ends\nnext":           "\nnext",
		"\x1b]a\x1b[2Jb":                    "b",
		"caf\u00e9 \u200e\u200f \U0001f9ad": "caf\u00e9 \u200e\u200f \U0001f9ad",
	} {
		var st stripper
		if got := st.clean(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
		// The same in pieces of one character.
		st = stripper{}
		var b strings.Builder
		for _, r := range in {
			b.WriteString(st.clean(string(r)))
		}
		if b.String() != want {
			t.Errorf("%q in pieces: %q, not %q", in, b.String(), want)
		}
	}
}

func FuzzStripper(f *testing.F) {
	for _, s := range []string{"\x1b[31mx", "\x1b]0;\x07", "\x1b(B", "\u009b", "a\x1b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var st stripper
		got := st.clean(s)
		for _, r := range got {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || r >= 0x202a && r <= 0x202e) {
				t.Errorf("%q left %q", s, r)
			}
		}
		if l := line(s); strings.ContainsAny(l, "\n\x1b\u009b") {
			t.Errorf("%q is no line", l)
		}
	})
}

func TestStrippedWriterKeepsCharactersWhole(t *testing.T) {
	const text = "snow ☃ \U0001f9ad \x1b[31mred\x1b[0m \xff end"
	for size := 1; size < 8; size++ {
		var b strings.Builder
		w := &strippedWriter{w: &b}
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatal(n, err)
			}
		}
		if got := b.String(); got != "snow ☃ \U0001f9ad red \ufffd end" {
			t.Errorf("in pieces of %d: %q", size, got)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"☃☃☃☃", 3, "☃☃…"}, {"", 1, ""}} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("%q %d: %q", c.in, c.n, got)
		}
	}
}

func TestExitCodesAreThoseOfAShell(t *testing.T) {
	for _, c := range []struct {
		res  holdfast.ExecResult
		want int
	}{
		{holdfast.ExecResult{Class: holdfast.ExitOK}, 0},
		{holdfast.ExecResult{Class: holdfast.ExitExit, ExitCode: 3}, 3},
		{holdfast.ExecResult{Class: holdfast.ExitExit, ExitCode: 255}, 255},
		{holdfast.ExecResult{Class: holdfast.ExitTimeout, ExitCode: -1}, 124},
		{holdfast.ExecResult{Class: holdfast.ExitError}, 127},
		{holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGKILL"}, 137},
		{holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGTERM"}, 143},
		{holdfast.ExecResult{Class: holdfast.ExitOOM, ExitCode: -1, Signal: "SIGKILL"}, 137},
		{holdfast.ExecResult{Class: holdfast.ExitSignal, ExitCode: -1, Signal: "SIGRTMIN"}, 1},
		{holdfast.ExecResult{Class: holdfast.ExitCanceled, ExitCode: -1}, 1},
	} {
		got := 0
		if err := exitOf(c.res); err != nil {
			got = err.(*exitError).code
		}
		if got != c.want {
			t.Errorf("%+v: %d, not %d", c.res, got, c.want)
		}
	}
}
