package files

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plainCalls are all functions of os and filepath that this package may call: they take
// no path to the kernel.
var plainCalls = map[string][]string{
	// The methods of a Root resolve names below it by themselves.
	"os":            {"Geteuid", "Getegid", "Root"},
	"path/filepath": {"Clean", "Join", "IsAbs", "IsLocal", "Base", "Dir"},
	"io/fs":         {"ErrNotExist", "ErrPermission", "ErrExist", "PathError"},
	"io/ioutil":     {},
}

// byDescriptor lists all calls of unix and syscall that this package may make, with the
// index of the directory descriptor for those that take a name; -1 for the others.
var byDescriptor = map[string]int{
	"Close": -1, "Fstat": -1, "Read": -1, "Write": -1, "Seek": -1, "Fsync": -1, "Fchown": -1, "Fchmod": -1, "ReadDirent": -1, "ParseDirent": -1,
	"Fstatat": 0, "Readlinkat": 0, "Mkdirat": 0, "Unlinkat": 0, "Renameat": 0,
}

// TestNoPathsButThroughTheResolver reads the source of this package and of package pattern:
// only package paths hands a path to the kernel, whatever library a call comes from. A new
// call has to be added here, and reviewed.
func TestNoPathsButThroughTheResolver(t *testing.T) {
	names, err := filepath.Glob("*.go")
	must(t, err)
	text, err := filepath.Glob("../pattern/*.go")
	must(t, err)
	names = append(names, text...)
	files, calls := 0, 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files++
		calls += checkSource(t, name, nil)
	}
	if files < 10 || calls < 30 {
		t.Errorf("%d files with %d calls were looked at: the test is blind", files, calls)
	}
	// The check must find bad calls.
	for _, bad := range []string{
		`import "os"; var _, _ = os.Stat("x")`, `import "os"; var f = os.Lstat`, `import x "os"; var _ = x.Remove("x")`,
		`import . "os"; var _ = Remove("x")`, `import "path/filepath"; var _, _ = filepath.EvalSymlinks("x")`,
		`import "golang.org/x/sys/unix"; var _, _ = unix.Open("x", 0, 0)`, `import "golang.org/x/sys/unix"; var _ = unix.Mkdirat(unix.AT_FDCWD, "x", 0)`,
		`import "golang.org/x/sys/unix"; var _ = unix.Fstatat(-100, "x", nil, 0)`, `import "syscall"; var _ = syscall.Unlink("x")`,
		`import "os/exec"; var _ = exec.Command("x")`, `import "golang.org/x/sys/unix"; var _, _, _ = unix.Syscall(2, 0, 0, 0)`,
		`import _ "unsafe"`,
	} {
		seen := 0
		checkSource(&counter{T: t, n: &seen}, "bad.go", "package files; "+bad)
		if seen == 0 {
			t.Errorf("not seen: %s", bad)
		}
	}
}

type reporter interface {
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// counter counts errors instead of failing.
type counter struct {
	*testing.T
	n *int
}

func (c *counter) Errorf(string, ...any) { *c.n++ }

// checkSource reports its findings in one file, and returns how many calls it checked.
func checkSource(t reporter, name string, src any) (calls int) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		local := filepath.Base(path)
		if i.Name != nil {
			local = i.Name.Name
		}
		if local == "." || path == "unsafe" || path == "os/exec" || path == "io/ioutil" || path == "C" {
			t.Errorf("%s imports %s as %s", name, path, local)
		}
		imported[local] = path
	}
	called := map[*ast.SelectorExpr]*ast.CallExpr{}
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if s, ok := c.Fun.(*ast.SelectorExpr); ok {
				called[s] = c
			}
		}
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if !ok || x.Obj != nil {
			return true
		}
		at := set.Position(s.Pos())
		switch path := imported[x.Name]; path {
		case "os", "path/filepath", "io/fs":
			calls++
			if !slices.Contains(plainCalls[path], s.Sel.Name) {
				t.Errorf("%s: %s.%s may take a path: resolve it with package paths", at, x.Name, s.Sel.Name)
			}
		case "golang.org/x/sys/unix", "syscall":
			c := called[s]
			if c == nil && !function(s.Sel.Name) {
				return true // a constant or a type
			}
			calls++
			dir, known := byDescriptor[s.Sel.Name]
			if c == nil || !known {
				t.Errorf("%s: %s.%s is not among the calls that work on descriptors", at, x.Name, s.Sel.Name)
			} else if dir >= 0 && !named(c.Args[dir]) {
				t.Errorf("%s: %s.%s takes no descriptor that was opened before", at, x.Name, s.Sel.Name)
			}
		}
		return true
	})
	return calls
}

// function reports whether a name of unix or syscall looks like a function: constants
// and errors are upper case, types end in _t or are Errno.
func function(name string) bool {
	return strings.ToUpper(name) != name && !strings.HasSuffix(name, "_t") && name != "Errno"
}

// named reports whether an expression is a variable or a field, not a constant.
func named(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return true
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		return ok && x.Name != "unix" && x.Name != "syscall"
	}
	return false
}

// TestResolverIsTheOnlyOne: package paths itself hands paths to the kernel in three
// places, twice for "/" and for the names of boxd's own files, and never with AT_FDCWD.
func TestResolverIsTheOnlyOne(t *testing.T) {
	b, err := os.ReadFile("../paths/paths_linux.go")
	must(t, err)
	c, err := os.ReadFile("../paths/paths.go")
	must(t, err)
	src := string(b) + string(c)
	if n := strings.Count(src, "unix.Open("); n != 2 {
		t.Errorf("%d calls of unix.Open", n)
	}
	if strings.Count(src, `os.OpenRoot("/")`) != 1 {
		t.Error("os.OpenRoot of something else than /")
	}
	src = strings.ReplaceAll(strings.ReplaceAll(src, `os.OpenRoot("/")`, ""), "os.Root", "")
	for _, bad := range []string{"AT_FDCWD", "os.", "filepath."} {
		if strings.Contains(src, "\t"+bad) || strings.Contains(src, " "+bad) || strings.Contains(src, "("+bad) {
			t.Errorf("%s in package paths", bad)
		}
	}
	if strings.Count(src, "RESOLVE_NO_MAGICLINKS") != strings.Count(src, "unix.Openat2(") {
		t.Error("an openat2 that follows magic links")
	}
}
