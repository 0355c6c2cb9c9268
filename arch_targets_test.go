package holdfast_test

import (
	"go/ast"
	"go/types"
	"os"
	"regexp"
	"strings"
	"testing"
)

// testFunc is a test that `go test` runs by itself.
var testFunc = regexp.MustCompile(`^(Test|Fuzz)[A-Z0-9]`)

// TestEveryTestIsInATarget checks testdata/tests.txt: each test of the module is listed
// once, under make test, or under make check if its first statement is testkit.Long. So
// every test runs in one of the two: anywhere else a call of testkit.Long would skip a
// part that then never runs, and a file for another system or build never runs.
// scripts/ran checks that the tests ran.
func TestEveryTestIsInATarget(t *testing.T) {
	text, err := os.ReadFile("testdata/tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for l := range strings.Lines(string(text)) {
		target, test, _ := strings.Cut(strings.TrimSpace(l), " ")
		if listed[test] != "" {
			t.Errorf("testdata/tests.txt has %s twice", test)
		}
		listed[test] = target
	}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		longs := 0
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && isLong(c) {
				longs++
			}
			return true
		})
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !testFunc.MatchString(f.Name.Name) || f.Name.Name == "TestMain" {
				continue
			}
			name, target := s.pkg+" "+f.Name.Name, "test"
			if first, ok := f.Body.List[0].(*ast.ExprStmt); ok && isLong(first.X) {
				target = "check"
				longs--
			}
			if listed[name] != target {
				t.Errorf("%s is in make %s, testdata/tests.txt says %q: run scripts/tests", name, target, listed[name])
			}
			delete(listed, name)
			if b := buildOf(s); b != "" && b != "linux" {
				t.Errorf("%s: %s is built for %s only: neither make test nor make check runs it", s.name, f.Name.Name, b)
			}
		}
		if longs > 0 {
			t.Errorf("%s: testkit.Long is the first statement of a test, or it leaves out what nothing runs", s.name)
		}
	}
	for name := range listed {
		t.Errorf("testdata/tests.txt has %s, which is gone: if it is meant to be, run scripts/tests", name)
	}
}

func isLong(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	return ok && types.ExprString(c.Fun) == "testkit.Long"
}

// buildOf returns the build constraint of a file, from its text or its name.
func buildOf(s *source) string {
	for _, l := range s.text {
		if b, ok := strings.CutPrefix(l, "//go:build "); ok {
			return b
		}
		if strings.HasPrefix(l, "package ") {
			break
		}
	}
	for _, system := range []string{"darwin", "windows"} {
		if strings.HasSuffix(s.name, "_"+system+"_test.go") {
			return system
		}
	}
	return ""
}
