package gitpatch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

var update = flag.Bool("update", false, "rewrite testdata")

// cases are pairs of trees, by the names of their golden files.
func cases() map[string][2]files {
	program := func(n int) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf("func number%d() {\n\tone()\n\ttwo()\n\tthree()\n\tfour()\n}\n\n", i)
		}
		return text
	}
	changed := strings.Replace(program(9), "{\n\tone()\n\ttwo()\n\tthree()\n\tfour()", "{\n\tone()\n\ttwo()\n\tthree()\n\tFOUR()", 1)
	changed = strings.Replace(changed, "func number6() {\n\tone()\n", "func number6() {\n", 1)
	many := files{}
	for i := range 120 {
		many[fmt.Sprintf("dir%d/file", i)] = file(joined(numbers(i * i % 130)))
	}
	long := strings.Repeat("a long name/", 12)
	return map[string][2]files{
		"new":           {{}, {"dir/a": file("one\ntwo\n"), "x.sh": script("#!/bin/sh\n")}},
		"deleted":       {{"dir/a": file("one\ntwo\n"), "x.sh": script("#!/bin/sh\n")}, {}},
		"changed":       {texts(program(9)), texts(changed)},
		"mode":          {{"a": file("a\n"), "b": script("b\n"), "c": file("c\n")}, {"a": script("a\n"), "b": file("b\n"), "c": script("C\n")}},
		"link":          {{"gone": link("x"), "moved": link("old/target")}, {"moved": link("new/target"), "new": link("../out of\ttree")}},
		"newline":       {{"added": file("a\nb"), "both": file("a\nb"), "lost": file("a\nb\n")}, {"added": file("a\nb\n"), "both": file("A\nb"), "lost": file("a\nb")}},
		"binary":        {{"gone": file("\x00gone"), "b": file("one\x00\xff")}, {"b": file("two\x00\xff\xfe"), "new": script(strings.Repeat("\x00\x01new", 40))}},
		"binary-mode":   {{"a": file("\x00same")}, {"a": script("\x00same")}},
		"names":         {{}, {"a b": file("space\n"), `q"uote`: file("x\n"), "t\tab": file("x\n"), "new\nline": file("x\n"), "b\\ack": file("x\n"), "\xff\xfe": file("x\n"), "ü": file("x\n"), "\x01\x7f": file("x\n"), "e\nmpty b/e\nmpty": file(""), "sp b/sp": file(""), "end ": file("x\n"), `"`: link("x")}},
		"names-not-git": {{}, {"space /x": file("x\n"), "space /empty": file("")}},
		"kind":          {{"a": file("a\n"), "b": link("x"), "c": file("c\n"), "d/e": file("e\n"), "f/g": file("g\n"), "h": link("d")}, {"a": link("a\n"), "b": file("x"), "c/d": file("d\n"), "d": file("d\n"), "f": link("c"), "h/i": file("i\n")}},
		"empty":         {{"a": file(""), "b": file("b\n"), "gone": file("")}, {"a": file("a\n"), "b": file(""), "new": file("")}},
		"stat-many":     {many, {}},
		"stat-long":     {{long + "x": file("a\nb\n"), "b": file("\x00")}, {long + "x": file("a\nc\n"), "b": file(strings.Repeat("\x00", 123456)), "none": file(""), "big": file(joined(numbers(5000)))}},
		"no-difference": {texts("a\n"), texts("a\n")},
	}
}

// TestGoldenFiles: the names, the table and the patch of each case. The contents of binary files are shown
// decompressed, because other releases of Go may compress otherwise.
func TestGoldenFiles(t *testing.T) {
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range []holdfast.DiffFormat{holdfast.DiffNames, holdfast.DiffStat, holdfast.DiffPatch} {
				if f == holdfast.DiffPatch && strings.HasPrefix(name, "stat-") {
					continue
				}
				text, sum := output(t, c[0], c[1], Options{Format: f})
				got += fmt.Sprintf("== %s %+v\n%s", f, sum, readable(t, text))
			}
			none, sum := output(t, c[0], c[1], Options{NoLiterals: true})
			if sum.Omitted > 0 && !strings.HasPrefix(name, "stat-") {
				got += fmt.Sprintf("== without literals %+v\n%s", sum, none)
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				must(t, os.MkdirAll("testdata", 0o755))
				must(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			must(t, err)
			if got != string(want) {
				t.Errorf("%s changed (-update writes it):\n%s", path, got)
			}
		})
	}
}

// readable replaces the lines of literals by what they hold.
func readable(t testing.TB, text string) string {
	t.Helper()
	out := ""
	for text != "" {
		at := strings.Index(text, "\nliteral ") + 1
		if at == 0 {
			return out + text
		}
		out += text[:at]
		for text = text[at:]; strings.HasPrefix(text, "literal "); {
			data, rest, err := decode(text)
			must(t, err)
			head, _, _ := strings.Cut(text, "\n")
			out += fmt.Sprintf("%s: %q\n", head, data)
			text = rest
		}
	}
	return out
}
