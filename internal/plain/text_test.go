package plain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-run/holdfast"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 s", 0: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min", 59*time.Minute + 59*time.Second: "59 min",
		time.Hour: "1 h", 23 * time.Hour: "23 h", 24 * time.Hour: "1 day", 1000 * time.Hour: "41 days",
	} {
		if got := Age(d); got != want {
			t.Errorf("%s: %q, not %q", d, got, want)
		}
	}
}

func TestEndingsDiffer(t *testing.T) {
	if got := Endings([]string{"a-000000001111", "b-000000001111", "c"}); got[0] != "a-000000001111" || got[1] != "b-000000001111" || got[2] != "c" {
		t.Errorf("%q", got)
	}
	if got := Endings([]string{"a-000000001111", "b-000000002222"}); got[0] != "00001111" {
		t.Errorf("%q", got)
	}
}

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
		"a\rb\x01c\x00d\x7fe\x07":           "abcde",
		"\u202eevil\u2066":                  "evil",
		"\x1b[31":                           "",
		"\x1b[31\nnext":                     "\nnext",
		"\x1b]0;never ends\nnext":           "\nnext",
		"\x1b]a\x1b[2Jb":                    "b",
		"caf\u00e9 \u200e\u200f \U0001f9ad": "caf\u00e9 \u200e\u200f \U0001f9ad",
	} {
		var st Stripper
		if got := st.Clean(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
		// The same in pieces of one character.
		st = Stripper{}
		var b strings.Builder
		for _, r := range in {
			b.WriteString(st.Clean(string(r)))
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
		var st Stripper
		for _, r := range st.Clean(s) {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || r >= 0x202a && r <= 0x202e) {
				t.Errorf("%q left %q", s, r)
			}
		}
	})
}

// TestNothingIsHidden: what somebody decides on is shown whole.
func TestNothingIsHidden(t *testing.T) {
	for in, want := range map[string]string{
		"ls \u009d; id > pwned; true #\u009c -la": `ls \u009d; id > pwned; true #\u009c -la`,
		"ls \u009b; rm -rf @x":                    `ls \u009b; rm -rf @x`,
		"ls \x1b]0;rm\x07 \x1b[8mrm":              `ls \u001b]0;rm\u0007 \u001b[8mrm`,
		"a\u0090b\u0098c\u009ed\u009fe":           `a\u0090b\u0098c\u009ed\u009fe`,
		"a\rb\x01c\x00d\x7fe\nf\tg":               `a\rb\u0001c\u0000d\u007fe\nf\tg`,
		"\u202e\u2066\u200e\u200f\u061c":          `\u202e\u2066\u200e\u200f\u061c`,
		"r\u200bm\u200c\u200d\u2060\ufeff\u00ad":  `r\u200bm\u200c\u200d\u2060\ufeff\u00ad`,
		"a\u00a0b\u2003c\u3000d\u2028\u2029":      `a\u00a0b\u2003c\u3000d\u2028\u2029`,
		"\u3164\uffa0\u115f\u2800\u034f\u180e":    `\u3164\uffa0\u115f\u2800\u034f\u180e`,
		"x\ufe0f\U000e0072\U000e0100\U0001d173":   `x\ufe0f\udb40\udc72\udb40\udd00\ud834\udd73`,
		"\ue000":                                  `\ue000`,
		"caf\u00e9 ☃ \U0001f9ad e\u0301":          "caf\u00e9 ☃ \U0001f9ad e\u0301",
		"ls" + strings.Repeat(" ", 5000) + "; rm": "ls[5000 blanks]; rm",
		"ls" + strings.Repeat("\n\t", 20) + "rm":  "ls[40 blanks]rm",
		"  if x:\n        y":                      `  if x:\n        y`,
	} {
		if got := OneLine(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
		if got := OneLine(OneLine(in)); got != want {
			t.Errorf("%q twice: %q", in, got)
		}
		doc, err := json.Marshal(map[string]string{"command": in})
		if err != nil {
			t.Fatal(err)
		}
		want = `{"command":"` + want + `"}`
		if got := Compact(doc); got != want {
			t.Errorf("%s: %q, not %q", doc, got, want)
		}
		if got := Compact([]byte(`{ "command": ` + inJSON(in) + ` }`)); got != want {
			t.Errorf("%q raw: %q, not %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		`{"a":"\u0072\u006d \/ \u0022 \u005c \ud83d\ude00"}`: `{"a":"rm / \u0022 \u005c 😀"}`,
		`{"a":"\\u0072 \ud83d \udE00\ud83dx"}`:               `{"a":"\\u0072 \ud83d \udE00\ud83dx"}`,
		"no\u009djson\n":                                     `no\u009djson\n`,
	} {
		if got := Compact([]byte(in)); got != want {
			t.Errorf("%s: %s, not %s", in, got, want)
		}
	}
	if got := Prose("a\u009dhidden\u009c\n\tb\x1b[2J\u202e👩\u200d💻 ⚠\ufe0f"); got != "a\\u009dhidden\\u009c\n\tb\\u001b[2J\\u202e👩\u200d💻 ⚠\ufe0f" {
		t.Errorf("prose: %q", got)
	}
}

// inJSON is a string in JSON whose characters stand for themselves wherever they may.
func inJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < ' ' {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// FuzzNothingIsHidden: every visible character of a text occurs in what is shown of
// it, in its order, and nothing in that is invisible.
func FuzzNothingIsHidden(f *testing.F) {
	for _, s := range []string{"ls \u009d; id\u009c -la", "\u009b1mx", "\x1b]0;x\x07", "a\u202eb", "x" + strings.Repeat(" ", 40) + "y", `\n\n`, `"\\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc, err := json.Marshal([]string{s})
		if err != nil {
			t.Fatal(err)
		}
		for how, got := range map[string]string{"line": OneLine(s), "compact": Compact(doc), "prose": Prose(s), "no JSON": Compact([]byte(s + "x"))} {
			rest := got
			for _, r := range strings.ToValidUTF8(s, "") {
				if r <= ' ' || r == '"' || r == '\\' || unicode.IsSpace(r) || hidden(r) {
					continue
				}
				_, after, ok := strings.Cut(rest, string(r))
				if !ok {
					t.Fatalf("%s of %q hides %q: %q", how, s, r, got)
				}
				rest = after
			}
			for _, r := range got {
				if how != "prose" && hidden(r) || unicode.IsControl(r) && r != '\n' && r != '\t' || Reorders(r) {
					t.Fatalf("%s of %q leaves %q: %q", how, s, r, got)
				}
			}
			if how == "line" && strings.Contains(got, strings.Repeat(" ", maxBlanks+1)) {
				t.Fatalf("%q is mostly blank", got)
			}
		}
	})
}

// TestQuestionsAreShownWhole: of a long call it is said that there is more, and where.
func TestQuestionsAreShownWhole(t *testing.T) {
	long := strings.Repeat("x", MaxAsked) + "; rm"
	a := holdfast.Approval{ID: "01", Tool: "Ba\u009dsh\u009c", Input: json.RawMessage(`{"command":"` + long + `"}`), Reason: "mode"}
	text := func() string {
		var all []string
		for _, l := range Question(a, MaxAsked) {
			all = append(all, l.Text)
		}
		return strings.Join(all, "\n")
	}
	got := text()
	if !strings.Contains(got, "that is the beginning, 4000 of 4018 characters; all of it: holdfast approvals show 01") || !strings.HasPrefix(got, `Ba\u009dsh\u009c wants`) {
		t.Errorf("%q", got)
	}
	a.Input = json.RawMessage(`{"command":"` + long[20:] + `"}`)
	if got := text(); strings.Contains(got, "the beginning") || !strings.Contains(got, "; rm") {
		t.Errorf("%q", got)
	}
	// A change is shown line by line, and so is what a command of several lines runs.
	a.Tool, a.Input = "Edit", json.RawMessage(`{"file_path":"a.go","old_string":"one\ntwo\nthree","new_string":"one\n2\u202e\nthree","replace_all":true}`)
	if got := text(); got != "Edit wants to run: a.go {\"replace_all\":true}\none\ntwo\n2\\u202e\nthree\nasked because mode" {
		t.Errorf("%q", got)
	}
	a.Tool, a.Input = "Bash", json.RawMessage(`{"command":"cd x\n\nrm -rf y","timeout":5}`)
	if got := text(); got != "Bash wants to run: {\"timeout\":5}\ncd x\n\nrm -rf y\nasked because mode" {
		t.Errorf("%q", got)
	}
	a.Tool, a.Input = "Bash", json.RawMessage(`{"command":"ls","command":"rm"}`)
	if got := text(); got != "Bash wants to run: {\"command\":\"ls\",\"command\":\"rm\"}\nasked because mode" {
		t.Errorf("%q", got)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"☃☃☃☃", 3, "☃☃…"}, {"", 1, ""}} {
		if got := Cut(c.in, c.n); got != c.want {
			t.Errorf("%q %d: %q", c.in, c.n, got)
		}
	}
}

// TestChangesAreShownLineByLine: lines that stay are context, and all of both texts that
// differs is there.
//
// FH-28.
func TestChangesAreShownLineByLine(t *testing.T) {
	marks := map[Kind]string{Added: "+", Removed: "-", Context: " "}
	for _, c := range []struct{ from, to, want string }{
		{"a\nb\nc\nd\ne\nf\n", "a\nB\nc\nd\nE\nf\n", " a|-b|+B| c| d|-e|+E| f"},
		{"", "a\nb", "+a|+b"},
		{"a\nb", "", "-a|-b"},
		{"x\ny\nz", "y\nz\nx", "-x| y| z|+x"},
		{"same", "same", " same"},
		// The line after the text in the file becomes a part of its last line, or no longer is one.
		{"# a\n", "# a", `-# a\n|+# a`},
		{"# a", "# a\n", `-# a|+# a\n`},
		{"\n", "", `-\n`},
		{"a\nb", "a\nb\nc\n", ` b|+c\n`},
		{"a\tb", `a\tb`, `-a\tb|+a\tb`},
	} {
		var got []string
		for _, l := range change(c.from, c.to) {
			got = append(got, marks[l.Kind]+l.Text)
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%q to %q: %q, not %q", c.from, c.to, strings.Join(got, "|"), c.want)
		}
	}
	long := strings.Repeat("a\nb\n", 2000)
	if got := change("x\n"+long+"x", "y\n"+long+"y"); len(got) != 2*4002 {
		t.Errorf("%d lines of a long change", len(got))
	}
}

// FuzzChange: a change shows every line of both texts, but for those that both begin or
// end with.
func FuzzChange(f *testing.F) {
	f.Add("a\nb\nc", "a\nx\nc")
	f.Fuzz(func(t *testing.T, from, to string) {
		old, now, differs := "", "", false
		for _, l := range change(from, to) {
			differs = differs || l.Kind != Context
			if l.Kind != Added {
				old += l.Text + "\n"
			}
			if l.Kind != Removed {
				now += l.Text + "\n"
			}
		}
		if differs != (from != to) {
			t.Fatalf("%q to %q: shown as a difference: %t", from, to, differs)
		}
		for shown, whole := range map[string]string{old: from, now: to} {
			var all strings.Builder
			for _, l := range pieces(whole, strings.HasSuffix(from, "\n") != strings.HasSuffix(to, "\n")) {
				all.WriteString(l.shown + "\n")
			}
			if !strings.Contains(all.String(), shown) {
				t.Fatalf("%q to %q: %q is not part of %q", from, to, shown, all.String())
			}
		}
	})
}
