package script_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/internal/driver/mem/script"
)

func text(s string) script.Word { return script.Word{{Kind: script.Text, Text: s}} }

// TestParse: a script becomes the tree that its operators mean.
func TestParse(t *testing.T) {
	simple := func(words ...string) script.Pipeline {
		var c script.Simple
		for _, w := range words {
			c.Words = append(c.Words, text(w))
		}
		return script.Pipeline{Commands: []script.Command{c}}
	}
	for src, want := range map[string]script.List{
		"":            nil,
		"a b # c":     {{AndOr: script.AndOr{First: simple("a", "b")}}},
		"a & b":       {{AndOr: script.AndOr{First: simple("a")}, Background: true}, {AndOr: script.AndOr{First: simple("b")}}},
		"a && b || c": {{AndOr: script.AndOr{First: simple("a"), Rest: []script.Link{{And: true, Next: simple("b")}, {Next: simple("c")}}}}},
		"! a | b": {{AndOr: script.AndOr{First: script.Pipeline{
			Negate: true, Commands: []script.Command{simple("a").Commands[0], simple("b").Commands[0]},
		}}}},
		"x=1 a 2>> f": {{AndOr: script.AndOr{First: script.Pipeline{Commands: []script.Command{script.Simple{
			Assigns: []script.Assign{{Name: "x", Value: text("1")}}, Words: []script.Word{text("a")},
			Redirs: []script.Redir{{FD: 2, Op: ">>", Target: text("f")}},
		}}}}}},
	} {
		got, err := script.Parse(src)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v\n%s", src, err, d)
		}
	}
}

// TestParseRefuses: what the shell does not know is an error, and so is deep nesting.
func TestParseRefuses(t *testing.T) {
	for _, src := range []string{
		"case x in esac", "function f", "a;;b", "if a; then b", "while a", "for 1 in a; do b; done", "a >", "${x-y}", "'a", "\"a", "a\\", "$(a", "$((1",
		"(a", "a && ", "| a", "}", strings.Repeat("(", 200) + "a" + strings.Repeat(")", 200), strings.Repeat("$(", 200) + "a" + strings.Repeat(")", 200),
	} {
		if got, err := script.Parse(src); err == nil {
			t.Errorf("%.40q is read as a list of %d", src, len(got))
		}
	}
}

// FuzzParse: parsing ends without a panic, whatever the script is.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a && b || ! c | d; e &", "x=1 y=\"$x\" cmd 2>&1 >> f < g", "if a; then b; elif c; then d; else e; fi", "until a; do b; done",
		"for i in a \"$@\" $(b); do echo $i $((i+1)) ${i}; done", "{ a; } > f; (b) < g", "$(" + "$((" + "\"${", "\\\na # b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, src string) { _, _ = script.Parse(src) })
}
