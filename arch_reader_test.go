package holdfast_test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Budgets of what a reader meets. What is embedded counts in full, wherever it was declared.
const (
	packageLines  = 3000
	typeMethods   = 30
	readFields    = 20
	rootExports   = 170
	configsFields = 40
)

// over is what is over a budget today, with its size. It may shrink, never grow, and goes
// from the list once it fits; a reason stands beside what is meant to stay.
var over = map[string]int{
	"interface internal/runtime.Host":      13,   // stays: all that a turn sees of the server: its log, its box, its decisions
	"methods cmd/holdfast.env":             76,   // stays: a method for each command
	"methods internal/boxd.Server":         51,   // stays: an operation of the protocol each, over one ledger and one gate
	"methods internal/driver/local.Driver": 57,   // stays: a step of making or ending a box each, over the same directories and cgroups
	"methods sandbox/check.analyzer":       63,   // stays: a method for each kind of node
	"package internal/snapshot":            3179, // stays: one order of work on the files of a scope, what imports little lies below it
	"package internal/boxd":                5318, // stays: one program, read from its ledger outwards
	"package internal/boxd/jail":           3551, // stays: the walls, and the places of sessions behind them
	"package internal/driver/local":        4267, // stays: what a box is made of on this machine
	"package sandbox/check":                4550, // stays: one reader of commands
	"struct ..Session":                     27,   // stays: what a session shows
	"struct cmd/holdfast.cli":              39,   // stays: a field for each command
	"struct hook.Input":                    25,   // stays: what hooks are told
	"struct internal/boxd.Server":          22,   // stays: the parts of PID 1, which live and end together
	"struct internal/journal.Row":          33,   // stays: what a session shows, and six fields that stay inside
	"struct internal/runtime/claude.line":  26,   // stays: the CLI's own protocol
	"struct internal/workspaces.Config":    21,   // stays: a check for each setting, and the parts that the rules need
	"struct internal/workspaces.Record":    26,   // stays: what a workspace shows, and nine fields that stay inside
}

// declared is what the module declares, by package and name.
type declared struct {
	lines      map[string]int // by package
	methods    map[string]int
	structs    map[string]*ast.StructType
	interfaces map[string]*ast.InterfaceType
	files      map[string]*source
	exported   int // of the root package
}

func read(all []*source) *declared {
	d := &declared{map[string]int{}, map[string]int{}, map[string]*ast.StructType{}, map[string]*ast.InterfaceType{}, map[string]*source{}, 0}
	for _, s := range all {
		if s.test || s.made || s.suite() || strings.HasPrefix(s.pkg, "sandbox/sandboxtest") {
			continue
		}
		d.lines[s.pkg] += len(s.text)
		for _, decl := range s.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					d.methods[s.pkg+"."+receiver(decl).Name]++
				} else if s.pkg == "." && decl.Name.IsExported() {
					d.exported++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						d.declare(s, spec)
					}
				}
			}
		}
	}
	return d
}

func (d *declared) declare(s *source, spec *ast.TypeSpec) {
	key := s.pkg + "." + spec.Name.Name
	d.files[key] = s
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		d.structs[key] = typ
	case *ast.InterfaceType:
		d.interfaces[key] = typ
	}
	if s.pkg == "." && spec.Name.IsExported() {
		d.exported++
	}
}

// over is what is over its budget.
func (d *declared) over() map[string]int {
	found := map[string]int{}
	for pkg, n := range d.lines {
		if n > packageLines && !strings.HasPrefix(pkg, "cmd/") {
			found["package "+pkg] = n
		}
	}
	for key, n := range d.methods {
		if n > typeMethods && !onePerCall[key] {
			found["methods "+key] = n
		}
	}
	for key, typ := range d.structs {
		limit := readFields
		if strings.HasPrefix(key, "internal/config.") {
			limit = configsFields
		}
		if n := d.inFull(key, typ.Fields, 0); n > limit {
			found["struct "+key] = n
		}
	}
	for key, typ := range d.interfaces {
		if n := d.inFull(key, typ.Methods, 0); n > interfaceMethods {
			found["interface "+key] = n
		}
	}
	if d.exported > rootExports {
		found["names of the root package"] = d.exported
	}
	return found
}

// inFull counts the fields of a struct or the methods of an interface, those of what it
// embeds included.
func (d *declared) inFull(key string, list *ast.FieldList, depth int) (n int) {
	for _, f := range list.List {
		n += len(f.Names)
		if len(f.Names) > 0 {
			continue
		}
		inner := named(d.files[key], f.Type)
		switch {
		case d.structs[inner] != nil && depth < 8:
			n += d.inFull(inner, d.structs[inner].Fields, depth+1)
		case d.interfaces[inner] != nil && depth < 8:
			n += d.inFull(inner, d.interfaces[inner].Methods, depth+1)
		default:
			n++
		}
	}
	return n
}

// TestReaderBudgets holds packages, types and structs to what somebody can keep in mind.
func TestReaderBudgets(t *testing.T) {
	found := read(sources(t)).over()
	for what, n := range found {
		switch most, listed := over[what]; {
		case !listed:
			t.Errorf("%s: %d is over its budget", what, n)
		case n > most:
			t.Errorf("%s: %d, it had %d", what, n, most)
		}
	}
	for what := range over {
		if _, still := found[what]; !still {
			t.Errorf("%s fits its budget now: take it off the list", what)
		}
	}
	if t.Failed() {
		var all []string
		for what, n := range found {
			all = append(all, fmt.Sprintf("\t%q: %d,", what, n))
		}
		slices.Sort(all)
		t.Log("today:\n" + strings.Join(all, "\n"))
	}
}

// onePerCall are types with a method for each route or call of an API: that of the server, or
// that of boxd.
var onePerCall = map[string]bool{"client.Client": true, "internal/httpapi.API": true, "sandbox.Box": true}

// named is a type of this module by package and name, as a file refers to it; empty for any
// other.
func named(s *source, e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return named(s, x.X)
	case *ast.Ident:
		return s.pkg + "." + x.Name
	case *ast.SelectorExpr:
		id, ok := x.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, p := range s.imports() {
			if in, ours := local(p); ours && (p == module && id.Name == "holdfast" || strings.HasSuffix(p, "/"+id.Name)) {
				return in + "." + x.Sel.Name
			}
		}
	}
	return ""
}
