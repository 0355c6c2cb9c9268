package holdfast_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	conformanceRow  = regexp.MustCompile(`^\| ([A-Z]+)-(\d+) \| .+ \| (.+) \| (\S+) \|$`)
	conformanceTest = regexp.MustCompile("^`([^`]+)` (Test\\w+)$")
	conformanceWait = regexp.MustCompile(`^pending: (part \d+|a later part)$`)
	// asserting are the calls by which a test fails.
	asserting = regexp.MustCompile(`\.(Error|Errorf|Fatal|Fatalf|wantKind)\(`)
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
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for l := range strings.SplitSeq(string(text), "\n") {
			m := conformanceRow.FindStringSubmatch(l)
			if m == nil {
				if strings.HasPrefix(l, "| ") && !strings.HasPrefix(l, "| Row |") {
					t.Errorf("%s: %q is no row", name, l)
				}
				continue
			}
			rows++
			checkRow(t, bodies, m[1], m[2], m[3])
		}
		if rows == 0 {
			t.Errorf("%s has no rows", name)
		}
	}
}

func checkRow(t *testing.T, bodies map[string]string, table, number, tests string) {
	t.Helper()
	if conformanceWait.MatchString(tests) {
		return
	}
	carries := regexp.MustCompile(table + `[-_]?` + number + `(\D|$)`)
	for test := range strings.SplitSeq(tests, ", ") {
		m := conformanceTest.FindStringSubmatch(test)
		if m == nil {
			t.Errorf("%s-%s: %q names no test", table, number, test)
			continue
		}
		switch body := bodies[m[1]+" "+m[2]]; {
		case body == "":
			t.Errorf("%s-%s: %s has no %s", table, number, m[1], m[2])
		case !carries.MatchString(body):
			t.Errorf("%s-%s: %s does not bear the number", table, number, m[2])
		case !asserting.MatchString(body):
			t.Errorf("%s-%s: %s asserts nothing", table, number, m[2])
		}
	}
}
