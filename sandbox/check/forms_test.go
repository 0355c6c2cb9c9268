package check

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// testdata/forms.txt has lines that a hostile reader of this package would try, and
// everyday ones: the rules to judge by (rm: it is a denied command; paths: /etc and
// /project/secret are denied; writes: only /project/build may be written), the expected
// verdict (deny; ask: an allow rule leaves it to a person; allow), and the line, in
// which ⏎ is a new line.
func TestForms(t *testing.T) {
	b, err := os.ReadFile("testdata/forms.txt")
	if err != nil {
		t.Fatal(err)
	}
	against := map[string]*Checker{
		"rm":     checker(t, Settings{DeniedCommands: []string{"rm"}}),
		"paths":  checker(t, Settings{DeniedPaths: []string{"/etc", "/project/secret"}}),
		"writes": checker(t, Settings{AllowedWritePaths: []string{"/project/build/"}}),
	}
	lines := 0
	for row := range strings.Lines(string(b)) {
		rules, rest, _ := strings.Cut(strings.TrimSuffix(row, "\n"), " ")
		want, line, ok := strings.Cut(rest, " ")
		c := against[rules]
		if !ok || c == nil {
			t.Fatalf("%q is no row", row)
		}
		lines++
		line = strings.ReplaceAll(line, "⏎", "\n")
		got := "allow"
		switch an, err := Analyze(line, "/project", "/home/u"); {
		case !c.Command(line).Allowed:
			got = "deny"
		case err != nil || len(an.Opaque)+len(an.Unsure) > 0:
			got = "ask"
		}
		if got != want {
			t.Errorf("%s: %s: %s, want %s", rules, line, got, want)
		}
	}
	if lines < 700 {
		t.Errorf("%d lines", lines)
	}
}

// The longest lines that are read cost little memory, whatever they repeat.
func TestLongLinesAreCheap(t *testing.T) {
	c := checker(t, Settings{DeniedPaths: []string{"/etc", "/project/secret"}, DeniedCommands: []string{"rm"}})
	for name, line := range map[string]string{
		"options":         "git log " + strings.Repeat("-p ", 20_000),
		"a cluster":       "tar -" + strings.Repeat("v", 60_000),
		"negations":       "git log --" + strings.Repeat("no-", 20_000) + "x",
		"links":           strings.Repeat("ln -s a b; ", 60) + "cat " + strings.Repeat("b/x ", 10_000),
		"links, patterns": strings.Repeat("ln -s a b/c; ", 60) + "cat " + strings.Repeat("*/*/*/* ", 5000),
		"scripts":         "sed " + strings.Repeat("-e p ", 12_000) + "f",
		"slashes":         "awk '{" + strings.Repeat("x++ / 2;", 7000) + "}' f",
		"directories":     "git " + strings.Repeat("-C a ", 12_000) + "log",
		"replacements":    "xargs -I% " + strings.Repeat("echo % ", 8000),
		"unknown":         "tar " + strings.Repeat("--zz ", 12_000),
		"launchers":       strings.Repeat("env ", 16_000) + "ls",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.Command(line)
		runtime.ReadMemStats(&after)
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 100 {
			t.Errorf("%s: %d MB", name, mb)
		}
	}
}
