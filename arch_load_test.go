package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/holdfast-run/holdfast"

// source is one Go file of the module.
type source struct {
	name string // slash-separated, relative to the module
	pkg  string // the package's directory; "." for the root
	test bool   // a _test.go file
	made bool   // generated
	text []string
	ast  *ast.File
	fset *token.FileSet
}

// suites are packages that ship a contract as tests: they count as test code.
var suites = map[string]bool{
	"agent/model/modeltest":        true,
	"sandbox/sandboxtest":          true,
	"internal/store/storetest":     true,
	"internal/app/apptest":         true,
	"internal/testkit":             true,
	"internal/testkit/powercut":    true,
	"internal/runtime/runtimetest": true,

	// A program that only tests start.
	"internal/runtime/runtimetest/scriptedagent": true,
}

func (s *source) suite() bool { return suites[s.pkg] }

// line is the line number of a node.
func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// span is how many lines a node covers.
func (s *source) span(n ast.Node) int { return s.line(n.End()) - s.line(n.Pos()) + 1 }

// imports lists what the file imports.
func (s *source) imports() []string {
	var out []string
	for _, i := range s.ast.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil {
			out = append(out, p)
		}
	}
	return out
}

var load = sync.OnceValues(func() ([]*source, error) {
	var out []*source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch {
			case name != "." && strings.HasPrefix(d.Name(), "."), d.Name() == "testdata", name == "tools", name == "bin", name == "dist":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		data, err := readSource(name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(name)
		out = append(out, &source{
			name: slash, pkg: path.Dir(slash), test: strings.HasSuffix(slash, "_test.go"),
			made: ast.IsGenerated(f), text: strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"),
			ast: f, fset: fset,
		})
		return nil
	})
	return out, err
})

// sources gives every Go file of the module, whatever its build tags.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d Go files only: this test must run in the module's root", len(all))
	}
	return all
}

// packages groups the non-test files by package.
func packages(t *testing.T) map[string][]*source {
	t.Helper()
	out := map[string][]*source{}
	for _, s := range sources(t) {
		if !s.test {
			out[s.pkg] = append(out[s.pkg], s)
		}
	}
	return out
}

// local is a package of this module by its directory; ok is false for others.
func local(imported string) (dir string, ok bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// std reports whether an import belongs to the standard library.
func std(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// calls walks the selector expressions pkg.Name of a file, with the import path
// that pkg stands for.
func calls(s *source, found func(importPath, name string, pos token.Pos)) {
	names := map[string]string{}
	for _, i := range s.ast.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = p
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				if p, ok := names[id.Name]; ok {
					found(p, sel.Sel.Name, sel.Pos())
				}
			}
		}
		return true
	})
}
