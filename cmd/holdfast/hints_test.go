package main

import (
	"errors"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// commandLine is a command line in a text, up to the first character that ends it there.
var commandLine = regexp.MustCompile(`\bholdfast((?: +(?:--?[a-zA-Z][a-zA-Z-]*(?:=\S+)?|--|[a-zA-Z0-9_%$.,;:@/<>\[\]|'*-]+))+)`)

// notCommands are the words that follow "holdfast" in prose.
var notCommands = []string{
	"and", "again", "binary", "changed", "does", "envelope", "has", "is", "on", "program", "root", "server", "server;", "starts", "that", "uses", "when",
}

// TestCommandsInHintsExist: each command that a text of the program names exists, with its flags.
func TestCommandsInHintsExist(t *testing.T) {
	root, seen := model(t), 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".cache", "node_modules", "testdata"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
				words := strings.Fields(m[1])
				if slices.Contains(notCommands, words[0]) {
					continue
				}
				seen++
				if why := unknownWord(root, words); why != "" {
					t.Errorf("%s: %q: %s", path, strings.TrimSpace(m[0]), why)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 150 {
		t.Errorf("%v, %d command lines", err, seen)
	}
}

// unknownWord returns what a command line names that does not exist, or "".
func unknownWord(root *kong.Node, words []string) string {
	at := root
	words = usual(words)
	for i, w := range words {
		name, flag := strings.CutPrefix(strings.TrimRight(w, ".,;:)"), "--")
		name, _, _ = strings.Cut(name, "=")
		switch {
		case w == "--" || w == "and" || w == "or":
			return ""
		case flag:
			if !slices.ContainsFunc(slices.Concat(at.AllFlags(false)...), func(f *kong.Flag) bool { return f.Name == name }) {
				return "no flag --" + name
			}
		case strings.HasPrefix(w, "-"):
		case len(at.Children) > 0 && !placeholder(w) && (i == 0 || !strings.HasPrefix(words[i-1], "--")):
			next := slices.IndexFunc(at.Children, func(n *kong.Node) bool {
				return n.Name == name || slices.Contains(n.Aliases, name)
			})
			if next < 0 {
				return "no command " + w
			}
			at = at.Children[next]
		}
		if strings.ContainsAny(w[len(w)-1:], ".,;:") {
			return "" // the sentence goes on after the command line
		}
	}
	return ""
}

// placeholder reports whether a word of a command line stands for another one.
func placeholder(w string) bool { return strings.ContainsAny(w, "%$<") || w == strings.ToUpper(w) }

// TestHintsQuoteForTheShell: a text that goes into a command line of a hint or of a note is quoted for the shell, because
// it may be a title or a path with blanks.
func TestHintsQuoteForTheShell(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, seen := token.NewFileSet(), 0
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	// No import is loaded, so the types of other packages, such as ids, are unknown here and are passed over. What the
	// user typed is a string.
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Error: func(error) {}, Importer: noImports{}}
	_, _ = conf.Check("main", set, files, &info)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for i, arg := range call.Args {
				format := info.Types[arg].Value
				if format == nil || format.Kind() != constant.String {
					continue
				}
				for _, verb := range pastedVerbs(constant.StringVal(format)) {
					if i+1+verb >= len(call.Args) {
						continue
					}
					seen++
					value := call.Args[i+1+verb]
					text := types.ExprString(value)
					if typ := info.Types[value].Type; typ != nil && types.Identical(typ.Underlying(), types.Typ[types.String]) &&
						!strings.HasPrefix(text, "word(") && text != "follow" && text != "keep" { // flags that the command adds
						t.Errorf("%s: %s is not quoted for the shell: use word", set.Position(value.Pos()), text)
					}
				}
				break
			}
			return true
		})
	}
	if seen < 50 {
		t.Errorf("%d values in command lines", seen)
	}
}

// noImports is an importer without packages.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not loaded") }

var (
	pasted = regexp.MustCompile(`\b(?:holdfast ([a-z]+)|git [a-z-]+|rm|chmod) [^;]*`)
	verb   = regexp.MustCompile(`%[^%a-zA-Z]*[%a-zA-Z]`)
)

// pastedVerbs returns the numbers, from 0, of the verbs of a format that are in a command line.
func pastedVerbs(format string) (out []int) {
	lines := slices.DeleteFunc(pasted.FindAllStringSubmatchIndex(format, -1), func(at []int) bool {
		return at[2] >= 0 && slices.Contains(notCommands, format[at[2]:at[3]])
	})
	n := 0
	for _, at := range verb.FindAllStringIndex(format, -1) {
		if format[at[1]-1] == '%' {
			continue
		}
		if slices.ContainsFunc(lines, func(line []int) bool { return line[0] < at[0] && at[0] < line[1] }) {
			out = append(out, n)
		}
		n++
	}
	return out
}
