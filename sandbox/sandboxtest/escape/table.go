package escape

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Row is one attempt in the table.
type Row struct {
	ID      string `json:"id"`
	Group   string `json:"group"`
	Attempt string `json:"attempt"`
	// Saw is what the program printed in the box, Control what it printed without the protection,
	// or why it has no control.
	Saw     string `json:"saw"`
	Verdict string `json:"verdict"`
	Control string `json:"control"`
}

// The verdicts on an attempt.
const (
	// Held means that the box withstood the attempt.
	Held = "held"
	// NotEnforced means that this limit is not available to this user on this machine, and that
	// the box reports it as missing.
	NotEnforced = "not enforced"
	// NotTried means that the attempt needs something that this user may not do on the host; the
	// row says what.
	NotTried = "not tried"
	// Escaped means that the attempt succeeded; the committed table never contains it.
	Escaped = "ESCAPED"
)

// Check compares the rows with one section of the table in the file path: attempts, order and
// verdicts must be the same. With update it writes the section to the file instead.
func Check(t *testing.T, path, section string, rows []Row, update bool) {
	t.Helper()
	for _, r := range rows {
		if r.Verdict != Held && r.Verdict != NotEnforced && r.Verdict != NotTried {
			t.Errorf("%s: %s", r.ID, r.Verdict)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->\n"
	head, rest, ok := strings.Cut(string(b), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no section %q", path, section)
	}
	if update {
		if t.Failed() {
			t.Fatal("a run that failed is not written down")
		}
		if err := os.WriteFile(path, []byte(head+begin+render(section, rows)+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, got := verdicts(old), []string{}
	for _, r := range rows {
		got = append(got, r.ID+" "+r.Verdict)
	}
	if strings.Join(want, "\n") != strings.Join(got, "\n") {
		t.Errorf("%s is not what was run: run make escapes\ntable:\n%s\nrun:\n%s", section, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

// verdicts returns the ids and verdicts in the text of a section.
func verdicts(section string) []string {
	var out []string
	for l := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(l), " | ")
		if len(cells) != 7 || !strings.HasPrefix(cells[0], "| `") {
			continue
		}
		out = append(out, strings.Trim(cells[0], "|` ")+" "+strings.Trim(cells[5], "* "))
	}
	return out
}

// render returns the text of one section of the table. The section's name is "DRIVER, USER".
func render(section string, rows []Row) string {
	driver, user, _ := strings.Cut(section, ", ")
	var b strings.Builder
	group := ""
	for _, r := range rows {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "\n### %s: %s\n\n| id | attempt | driver | user | saw | verdict | control |\n|---|---|---|---|---|---|---|\n", section, group)
		}
		verdict := r.Verdict
		if verdict != Held {
			verdict = "**" + verdict + "**"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", r.ID, r.Attempt, driver, user, cell(r.Saw), verdict, cell(r.Control))
	}
	b.WriteString("\n")
	return b.String()
}

// cell returns a text with the characters escaped that have a meaning in a table.
func cell(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' && c != '…' {
			return '.'
		}
		return c
	}, s)
	return strings.NewReplacer("|", "/", "<", "‹", ">", "›", "`", "'", "*", "·").Replace(s)
}
