package holdfast_test

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// public reports whether anybody may import a package of this module.
func public(dir string) bool {
	return dir != "internal" && !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/")
}

// TestPublicPackagesShowNoInternalType: what an exported name is made of can be named by
// whoever imports it.
func TestPublicPackagesShowNoInternalType(t *testing.T) {
	for dir, files := range packages(t) {
		if !public(dir) {
			continue
		}
		for _, s := range files {
			hidden := map[string]string{} // by the name that the file uses
			for _, i := range s.ast.Imports {
				p := strings.Trim(i.Path.Value, `"`)
				in, ours := local(p)
				if !ours || public(in) {
					continue
				}
				name := path.Base(p)
				if i.Name != nil {
					name = i.Name.Name
				}
				hidden[name] = in
			}
			for _, d := range s.ast.Decls {
				for _, shown := range shows(d) {
					ast.Inspect(shown, func(n ast.Node) bool {
						sel, ok := n.(*ast.SelectorExpr)
						if !ok {
							return true
						}
						if x, ok := sel.X.(*ast.Ident); ok && hidden[x.Name] != "" {
							t.Errorf("%s:%d shows %s of %s", s.name, s.line(sel.Pos()), sel.Sel.Name, hidden[x.Name])
						}
						return true
					})
				}
			}
		}
	}
}

// TestPublicPackagesHaveExamples: each of them shows how it is used.
func TestPublicPackagesHaveExamples(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
				has[s.pkg] = true
			}
		}
	}
	for dir := range packages(t) {
		if public(dir) && !strings.HasPrefix(dir, "sandbox/sandboxtest") && !suites[dir] && !has[dir] {
			t.Errorf("package %s has no Example", dir)
		}
	}
}

// shows are the parts of a declaration that its documentation shows: not the bodies of
// functions and not what is unexported.
func shows(d ast.Decl) (out []ast.Node) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || receiver(d).IsExported()) {
			out = append(out, d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					out = append(out, members(spec.Type)...)
				}
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					if n.IsExported() && spec.Type != nil {
						out = append(out, spec.Type)
					}
				}
			}
		}
	}
	return out
}

// members are the exported parts of a type.
func members(t ast.Expr) (out []ast.Node) {
	s, ok := t.(*ast.StructType)
	if !ok {
		return []ast.Node{t}
	}
	for _, f := range s.Fields.List {
		exported := len(f.Names) == 0
		for _, n := range f.Names {
			exported = exported || n.IsExported()
		}
		if exported {
			out = append(out, f.Type)
		}
	}
	return out
}

// receiver is the type that a method belongs to.
func receiver(d *ast.FuncDecl) *ast.Ident {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x
		default:
			return &ast.Ident{NamePos: token.NoPos, Name: "_"}
		}
	}
}
