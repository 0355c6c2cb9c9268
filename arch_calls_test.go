package holdfast_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// ban is a name that some files may not use.
type ban struct {
	pkg, names string // names separated by spaces; "*" bans the package
	where      func(*source) bool
	why        string
}

func production(s *source) bool { return !s.test && !s.suite() }

func under(s *source, dirs ...string) bool {
	for _, d := range dirs {
		if s.pkg == d || strings.HasPrefix(s.pkg, d+"/") {
			return true
		}
	}
	return false
}

var bans = []ban{
	{"time", "Sleep", func(s *source) bool { return s.test || s.suite() }, "tests wait for a condition, not for time"},
	{"os", "Getenv LookupEnv Environ ExpandEnv", func(s *source) bool { return production(s) && !under(s, "cmd") }, "the environment comes in as a field"},
	{"context", "WithDeadline WithDeadlineCause", production, "a limit is a duration: a time that was stored or sent knows no monotonic clock"},
	{"context", "Background TODO", func(s *source) bool { return production(s) && !under(s, "cmd", "internal/app") }, "contexts come from above"},
	{"os/exec", "*", func(s *source) bool { return production(s) && under(s, "internal/boxd", "cmd/boxd") }, "children of boxd start on its forker thread"},
	{"path/filepath", "Glob", func(s *source) bool {
		return production(s) && !under(s, "internal/testkit", "internal/torture")
	}, "a directory's name may contain * and [: use fs.Glob with os.DirFS"},
	{"math/rand", "*", production, "randomness comes in as a field"},
	{"log", "*", production, "log/slog, at the edge"},
	{"io/ioutil", "*", func(*source) bool { return true }, "use os and io"},
	{"os", "Exit", func(s *source) bool { return production(s) && !under(s, "cmd") }, "only main ends the process"},
	{module + "/internal/rooted", "Tree Seed RemoveAll DiskUsage DiskSpace Sync Walk OpenDir", func(s *source) bool {
		return production(s) && under(s, "internal/engine", "internal/place", "internal/permit", "internal/direct", "internal/settings", "internal/folder")
	}, "a session's trees are reached through place.Files"},
	{"log/slog", "Default SetDefault Info Warn Error Debug", production, "loggers come in as a field"},
}

// TestForbiddenCalls holds the bans. By that of WithDeadline every limit of a call, a turn or a request is a duration, so that a
// change of the machine's clock moves none (WS-N18).
func TestForbiddenCalls(t *testing.T) {
	for _, s := range sources(t) {
		calls(s, func(pkg, name string, pos token.Pos) {
			for _, b := range bans {
				if b.pkg == pkg && (b.names == "*" || allowed(b.names, name)) && b.where(s) {
					t.Errorf("%s:%d: %s.%s: %s", s.name, s.line(pos), pkg, name, b.why)
				}
			}
		})
	}
}

func TestNoInitNoPlaceholders(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s:%d: init(): wire it where it is used", s.name, s.line(f.Pos()))
			}
		}
		for _, i := range s.ast.Imports {
			if i.Name != nil && i.Name.Name == "_" && i.Path.Value != `"embed"` && i.Path.Value != `"unsafe"` {
				t.Errorf("%s:%d: import for its side effects: %s", s.name, s.line(i.Pos()), i.Path.Value)
			}
		}
		if s.name == "arch_calls_test.go" {
			continue
		}
		for i, l := range s.text {
			for _, mark := range []string{`panic("not yet`, "TO" + "DO", "FIX" + "ME", `panic("unimplemented`} {
				if strings.Contains(l, mark) && !strings.Contains(l, "TODO()") && !strings.Contains(l, "TodoWrite") {
					t.Errorf("%s:%d: unfinished: %s", s.name, i+1, strings.TrimSpace(l))
				}
			}
		}
	}
}

// TestPackageNames refuses names that say nothing.
func TestPackageNames(t *testing.T) {
	for dir, files := range packages(t) {
		switch name := files[0].ast.Name.Name; name {
		case "util", "utils", "common", "types", "helpers", "misc", "base", "lib":
			t.Errorf("package %s is named %s: name it for what it gives", dir, name)
		}
	}
}

var invariantNumber = regexp.MustCompile(`\bI-[0-9]+\b`)

// TestInvariantsAreCited holds docs/invariants.md and the code together: each
// invariant is cited by the code that keeps it, and only what is listed is cited.
func TestInvariantsAreCited(t *testing.T) {
	doc, err := os.ReadFile("docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	listed, cited := map[string]bool{}, map[string]bool{}
	for _, n := range regexp.MustCompile(`(?m)^- \*\*(I-[0-9]+) `).FindAllStringSubmatch(string(doc), -1) {
		if listed[n[1]] {
			t.Errorf("%s is listed twice", n[1])
		}
		listed[n[1]] = true
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, group := range s.ast.Comments {
			for _, n := range invariantNumber.FindAllString(group.Text(), -1) {
				cited[n] = true
				if !listed[n] {
					t.Errorf("%s cites %s, which docs/invariants.md does not list", s.name, n)
				}
			}
		}
	}
	for n := range listed {
		if !cited[n] {
			t.Errorf("%s is cited by no code", n)
		}
	}
}
