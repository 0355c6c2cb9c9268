package holdfast_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

var (
	conformanceRow  = regexp.MustCompile(`^\| ([A-Z]+)-([A-Z]?)(\d+) \| (.+?) \| .+ \| (.+) \| (\S+) \|$`)
	conformanceTest = regexp.MustCompile("^`([^`]+)` (Test\\w+(?:/\\w+)?)$")
	conformanceWait = regexp.MustCompile(`^pending: (part \d+b?|a later part)$`)
	// conformanceElse is a row that was decided otherwise: the record, then the tests of
	// what is done instead.
	conformanceElse = regexp.MustCompile(`^deviation \(ADR (\d{4})\): (.+)$`)
	// asserting are the calls by which a test fails, and the lines of a script.
	asserting = regexp.MustCompile(`(?m)^(?:stdout|stderr|cmp) |\.(Error|Errorf|Fatal|Fatalf)\(|\bwant[A-Z]\w*\(`)
)

// TestConformanceTables: each row of docs/conformance names tests that exist,
// carry the row's number and assert something, or the part that brings it. That
// the tests ran and passed is what scripts/conformance sees to.
func TestConformanceTables(t *testing.T) {
	files, err := filepath.Glob("docs/conformance/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no tables", err)
	}
	bodies := map[string]string{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				from := f.Pos()
				if f.Doc != nil {
					from = f.Doc.Pos()
				}
				bodies[s.pkg+" "+f.Name.Name] = strings.Join(s.text[s.line(from)-1:s.line(f.End())], "\n")
			}
		}
	}
	scripts, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		bodies["cmd/holdfast TestScripts/"+strings.TrimSuffix(filepath.Base(name), ".txtar")] = string(text)
	}
	for _, name := range files {
		if name == runtimesTable {
			continue // its rows are the cases of a suite: TestRuntimesTable
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rows, last := 0, ""
		for l := range strings.SplitSeq(string(text), "\n") {
			m := conformanceRow.FindStringSubmatch(l)
			if m == nil {
				if strings.HasPrefix(l, "| ") && !strings.HasPrefix(l, "| Row |") {
					t.Errorf("%s: %q is no row", name, l)
				}
				continue
			}
			rows++
			// The specification's sentence stands next to our claim, so that a narrower claim
			// shows.
			if number := m[1] + "-" + m[2] + m[3]; (m[4] == theSame) != (number == last) {
				t.Errorf("%s: %s says %q: the first row of a number quotes the specification, the others say %s", name, number, m[4], theSame)
			} else {
				last = number
			}
			row := tableRow{name: m[1] + "-" + m[2] + m[3], carries: regexp.MustCompile(m[1] + `[-_]?` + m[2] + `[-_]?` + m[3] + `(\D|$)`), tests: m[5], result: m[6]}
			row.check(t, bodies)
		}
		if rows == 0 {
			t.Errorf("%s has no rows", name)
		}
	}
}

// tableRow is a row of a table; carries finds its number in a test.
type tableRow struct {
	name, tests, result string
	carries             *regexp.Regexp
}

func (r tableRow) check(t *testing.T, bodies map[string]string) {
	t.Helper()
	if conformanceWait.MatchString(r.tests) {
		return
	}
	if m := conformanceElse.FindStringSubmatch(r.tests); m != nil {
		r.tests = m[2]
		r.deviates(t, m[1])
	} else if r.result == "deviation" {
		t.Errorf("%s: a deviation names its record: deviation (ADR 0000): `package` TestName", r.name)
	}
	for test := range strings.SplitSeq(r.tests, ", ") {
		m := conformanceTest.FindStringSubmatch(test)
		if m == nil {
			t.Errorf("%s: %q names no test", r.name, test)
			continue
		}
		switch body := bodies[m[1]+" "+m[2]]; {
		case body == "":
			t.Errorf("%s: %s has no %s", r.name, m[1], m[2])
		case !r.carries.MatchString(body):
			t.Errorf("%s: %s does not bear the number", r.name, m[2])
		case !asserting.MatchString(body):
			t.Errorf("%s: %s asserts nothing", r.name, m[2])
		}
	}
}

// deviates: the record exists, and docs/deviations.md has a line that names the row
// and links to it.
func (r tableRow) deviates(t *testing.T, number string) {
	t.Helper()
	records, err := filepath.Glob("docs/adr/" + number + "-*.md")
	if err != nil || len(records) != 1 {
		t.Errorf("%s: there is no ADR %s (%v)", r.name, number, err)
		return
	}
	text, err := os.ReadFile("docs/deviations.md")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if r.carries.MatchString(l) && strings.Contains(l, "(adr/"+filepath.Base(records[0])+")") {
			return
		}
	}
	t.Errorf("%s: docs/deviations.md says nothing of it with a link to ADR %s", r.name, number)
}

// theSame means the specification's sentence of the row above.
const theSame = "(the same)"

const runtimesTable = "docs/conformance/runtimes.md"

// TestRuntimesTable: the table of the runtimes' contract has each case of the suite,
// with its promise and its place, and nothing but those. scripts/runtimes fills in who
// keeps it.
func TestRuntimesTable(t *testing.T) {
	text, err := os.ReadFile(runtimesTable)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for l := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(l, "| ") && !strings.HasPrefix(l, "| Case |") {
			rows = append(rows, l)
		}
	}
	cases := runtimetest.Cases()
	for i, c := range cases {
		place := string(c.Where)
		if c.Why != "" {
			place += ": " + c.Why
		}
		want := "| " + c.Name + " | " + c.Says + " | " + place + " |"
		if i >= len(rows) || !strings.HasPrefix(rows[i], want) {
			t.Errorf("row %d of %s is not %s", i+1, runtimesTable, want)
		}
	}
	if len(rows) > len(cases) {
		t.Errorf("%s has %d rows for %d cases", runtimesTable, len(rows), len(cases))
	}
}
