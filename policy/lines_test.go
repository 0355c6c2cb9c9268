package policy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// everydayLine is a line that people wrote for a shell: a script of an npm package, or
// a recipe of a Makefile with make's own variables filled in.
type everydayLine struct {
	Package, Version, Script string
	Module, File, Target     string
	Line                     string
}

func everydayLines(t testing.TB, name string) []everydayLine {
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out []everydayLine
	scan := bufio.NewScanner(bytes.NewReader(b))
	for scan.Buffer(nil, 1<<20); scan.Scan(); {
		var l everydayLine
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// programsOf returns the allow rules that an owner would write to let every program of
// a line run.
func programsOf(an *check.Analysis) []string {
	var out []string
	for _, c := range an.Commands {
		if r := "Bash(" + c.Name + " *)"; !c.Lent && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// asksOf judges one line under allow rules for its programs and returns why a person is
// asked, or nothing.
func asksOf(t testing.TB, line string) string {
	an, err := check.Analyze(line, "/workspace", "/home/agent")
	if err != nil {
		return err.Error()
	}
	e := engine(t, policy.Config{Rules: rules(t, programsOf(an), nil, nil)})
	d, _, err := e.Rehearse(t.Context(), policy.Request{Mode: holdfast.ModeDefault, Tool: "Bash", Input: command(t, line)})
	switch {
	case err != nil:
		t.Fatal(err)
	case d.Verdict == policy.Allowed:
		return ""
	case len(an.Opaque) > 0:
		return an.Opaque[0].Reason + ": " + an.Opaque[0].Subject
	case len(an.Unsure) > 0:
		return an.Unsure[0].Reason + ": " + an.Unsure[0].Subject
	}
	for _, r := range an.Redirects {
		if r.Writes && r.Path != "/dev/null" {
			return "it writes to a file: " + r.Path
		}
	}
	return "no rule can name it"
}

var update = flag.Bool("update", false, "write testdata/lines-asked.txt anew")

// Everyday lines, under allow rules for their programs, ask a person at most about 5 %
// of the time. testdata/lines-asked.txt lists those that ask, with the reason.
func TestEverydayLinesAreNotAsked(t *testing.T) {
	var asked strings.Builder
	lines, asks := 0, 0
	for _, file := range []string{"lines-npm.jsonl", "lines-make.jsonl"} {
		all := everydayLines(t, file)
		before := asks
		for _, l := range all {
			if why := asksOf(t, l.Line); why != "" {
				asks++
				fmt.Fprintf(&asked, "%s%s %s%s: %s\n    asks: %s\n", l.Package, l.Module, l.Script, l.Target, strings.ReplaceAll(l.Line, "\n", "⏎"), why)
			}
		}
		lines += len(all)
		t.Logf("%s: %d of %d lines ask", file, asks-before, len(all))
	}
	share := 100 * float64(asks) / float64(lines)
	t.Logf("%d of %d lines ask, %.1f %%", asks, lines, share)
	if lines < 1300 || share > 5 {
		t.Errorf("%d of %d lines ask, %.1f %%, want 5 %% at most", asks, lines, share)
	}
	const list = "testdata/lines-asked.txt"
	if *update {
		if err := os.WriteFile(list, []byte(asked.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(list); err != nil || string(want) != asked.String() {
		t.Errorf("%s is not what the test finds (%v); look at the difference after: go test ./policy -run EverydayLines -update", list, err)
	}
}
