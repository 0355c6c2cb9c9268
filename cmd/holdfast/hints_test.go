package main

import (
	"go/ast"
	"go/parser"
	"go/token"
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
