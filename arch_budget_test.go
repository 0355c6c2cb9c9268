package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A file may raise a budget by a comment within its first 15 lines:
//
//	// budget: file 620: one table that is read top to bottom
//	// budget: func (*Engine).plan 95: the decision table of the resume ladder
//	// budget: struct Config 40: one field per setting
//
// The number is the new limit; without a reason it counts for nothing.
var budgetLine = regexp.MustCompile(`^// budget: (file|func|struct|interface)(?: (\S+))? (\d+): \S.{9,}$`)

// Budgets, and the hard limits that no reason lifts.
const (
	fileLines, fileHard      = 500, 800
	funcLines, funcHard      = 80, 160
	interfaceMethods         = 10
	structFields, structHard = 26, 40
)

// raised is the limit of one thing in one file: the budget, or what the file's
// own comment makes of it.
func raised(s *source, what, name string, budget, hard int) int {
	for _, l := range s.text[:min(15, len(s.text))] {
		m := budgetLine.FindStringSubmatch(l)
		if m == nil || m[1] != what || m[2] != name {
			continue
		}
		if n, err := strconv.Atoi(m[3]); err == nil {
			return min(n, hard)
		}
	}
	return budget
}

func TestBudgets(t *testing.T) {
	for _, s := range sources(t) {
		if s.made {
			continue
		}
		if limit := raised(s, "file", "", fileLines, fileHard); len(s.text) > limit {
			t.Errorf("%s has %d lines, %d allowed", s.name, len(s.text), limit)
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				name := funcName(d)
				if limit := raised(s, "func", name, funcLines, funcHard); s.span(d) > limit {
					t.Errorf("%s:%d: %s has %d lines, %d allowed", s.name, s.line(d.Pos()), name, s.span(d), limit)
				}
			case *ast.TypeSpec:
				checkType(t, s, d)
			}
			return true
		})
	}
}

func checkType(t *testing.T, s *source, d *ast.TypeSpec) {
	t.Helper()
	switch typ := d.Type.(type) {
	case *ast.InterfaceType:
		if n := fields(typ.Methods); n > interfaceMethods {
			t.Errorf("%s:%d: interface %s has %d methods, %d allowed", s.name, s.line(d.Pos()), d.Name.Name, n, interfaceMethods)
		}
	case *ast.StructType:
		limit := structFields
		if s.pkg == "internal/config" {
			limit = structHard
		}
		limit = raised(s, "struct", d.Name.Name, limit, structHard)
		if n := fields(typ.Fields); n > limit {
			t.Errorf("%s:%d: struct %s has %d fields, %d allowed", s.name, s.line(d.Pos()), d.Name.Name, n, limit)
		}
	}
}

func fields(l *ast.FieldList) int {
	n := 0
	for _, f := range l.List {
		n += max(1, len(f.Names))
	}
	return n
}

// funcName is "name" or "(*Type).name".
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	star, typ := "", d.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		star, typ = "*", p.X
	}
	if g, ok := typ.(*ast.IndexExpr); ok {
		typ = g.X
	}
	recv := "?"
	if id, ok := typ.(*ast.Ident); ok {
		recv = id.Name
	}
	return fmt.Sprintf("(%s%s).%s", star, recv, d.Name.Name)
}

// TestBudgetReasons refuses raises that are malformed or no longer needed.
func TestBudgetReasons(t *testing.T) {
	for _, s := range sources(t) {
		for i, l := range s.text {
			if !strings.HasPrefix(l, "// budget:") || s.name == "arch_budget_test.go" {
				continue
			}
			m := budgetLine.FindStringSubmatch(l)
			switch {
			case m == nil:
				t.Errorf("%s:%d: %q is not of the form `// budget: file|func|struct NAME N: reason`", s.name, i+1, l)
			case i >= 15:
				t.Errorf("%s:%d: a budget is raised within the first 15 lines of its file", s.name, i+1)
			case m[1] == "file" && len(s.text) <= fileLines:
				t.Errorf("%s:%d: the file fits its budget: remove the line", s.name, i+1)
			default:
				t.Logf("%s: %s", s.name, strings.TrimPrefix(l, "// budget: "))
			}
		}
	}
}

func TestPackageDocs(t *testing.T) {
	for dir, files := range packages(t) {
		doc := ""
		for _, s := range files {
			doc += s.ast.Doc.Text()
		}
		want := "Package " + files[0].ast.Name.Name + " "
		if files[0].ast.Name.Name == "main" {
			want = "Command " + dir[strings.LastIndex(dir, "/")+1:] + " "
		}
		if !strings.HasPrefix(doc, want) {
			t.Errorf("package %s has no doc comment that begins with %q", dir, want)
		}
	}
}

func TestExportedDocs(t *testing.T) {
	const least = 0.95
	documented, total := 0, 0
	var missing []string
	count := func(s *source, pos token.Pos, name string, docs ...*ast.CommentGroup) {
		if !ast.IsExported(name) {
			return
		}
		total++
		for _, d := range docs {
			if d.Text() != "" {
				documented++
				return
			}
		}
		missing = append(missing, fmt.Sprintf("%s:%d: %s", s.name, s.line(pos), name))
	}
	for _, s := range sources(t) {
		if s.test || s.ast.Name.Name == "main" {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if exportedReceiver(d) {
					count(s, d.Pos(), d.Name.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						count(s, spec.Pos(), spec.Name.Name, spec.Doc, d.Doc)
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							count(s, n.Pos(), n.Name, spec.Doc, spec.Comment, d.Doc)
						}
					}
				}
			}
		}
	}
	slices.Sort(missing)
	if total == 0 || float64(documented)/float64(total) < least {
		t.Errorf("%d of %d exported names are documented, %.0f %% asked:\n%s", documented, total, least*100, strings.Join(missing, "\n"))
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	name := funcName(d)
	if d.Recv == nil {
		return true
	}
	return ast.IsExported(strings.TrimLeft(name, "(*"))
}

// TestRatio holds the amount of test code against the amount of code, in lines
// that are neither blank nor comment.
func TestRatio(t *testing.T) {
	for _, group := range []struct {
		name  string
		least float64
		in    string
		also  string // suites that test this group
	}{
		{"the module", 0.8, "*", ""},
		{"engine", 1.2, "internal/engine internal/engine/...", ""},
		{"journal", 1.2, "internal/journal internal/journal/...", "internal/store/storetest"},
	} {
		code, test := 0, 0
		for _, s := range sources(t) {
			switch in := allowed(group.in, s.pkg); {
			case s.made:
			case in && (s.test || s.suite()) || group.also != "" && allowed(group.also, s.pkg):
				test += codeLines(s)
			case in:
				code += codeLines(s)
			}
		}
		t.Logf("%s: %d lines of test for %d of code", group.name, test, code)
		if float64(test) < group.least*float64(code) {
			t.Errorf("%s: %d lines of test for %d of code are %.2f, %.1f asked", group.name, test, code, float64(test)/float64(max(1, code)), group.least)
		}
	}
}

func codeLines(s *source) int {
	n := 0
	for _, l := range s.text {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "//") {
			n++
		}
	}
	return n
}
