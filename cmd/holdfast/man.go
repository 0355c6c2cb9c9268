package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast-run/holdfast"
)

type manCmd struct {
	Dir string `arg:"" optional:"" help:"Where the pages of all commands are written; without it the program's page goes to stdout."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*manCmd) Help() string {
	return `Examples:
  holdfast man | man -l -
  holdfast man ~/.local/share/man/man1 && man holdfast-session-create`
}

// Run writes the pages of all commands into a directory; without one it prints the program's page.
func (m *manCmd) Run(e *env) error {
	parser, err := newParser(&cli{}, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	root := parser.Model.Node
	if m.Dir == "" {
		if e.json {
			return e.print(map[string]string{"page": manPage(root)})
		}
		_, err := io.WriteString(e.stdout, manPage(root))
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "man", "the manual pages cannot be written: %w", err).WithHint("name a directory that you can write to")
	}
	n := 0
	for _, node := range commands(root) {
		name := filepath.Join(m.Dir, manName(node)+".1")
		if err := os.WriteFile(name, []byte(manPage(node)), 0o644); err != nil {
			return holdfast.Errorf(holdfast.KindInvalid, "man", "the manual pages cannot be written: %w", err).WithHint("name a directory that you can write to")
		}
		n++
	}
	return e.say(map[string]any{"dir": m.Dir, "pages": n}, "wrote %s to %s", count(n, "page", "pages"), line(m.Dir))
}

// commands returns a command and all visible commands below it, in the order of the help.
func commands(node *kong.Node) []*kong.Node {
	all := []*kong.Node{node}
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, commands(child)...)
		}
	}
	return all
}

// manName returns the name of a command's manual page.
func manName(node *kong.Node) string {
	return strings.TrimSuffix("holdfast-"+strings.ReplaceAll(commandOf(node), " ", "-"), "-")
}

// manPage renders a command's help as roff.
func manPage(node *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"holdfast %s\" \"Holdfast manual\"\n", strings.ToUpper(roff(manName(node))), roff(programVersion()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(node)), roff(strings.TrimSuffix(node.Help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(strings.TrimSpace("holdfast "+commandOf(node))), roff(synopsis(node)))
	b.WriteString(".SH DESCRIPTION\n" + roff(node.Help) + "\n")
	manText(&b, node.Detail)
	if len(node.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, arg := range node.Positional {
			fmt.Fprintf(&b, ".TP\n%s\n%s\n", roff(arg.Summary()), roff(arg.Help))
		}
	}
	manChildren(&b, node)
	b.WriteString(".SH OPTIONS\n")
	groups := node.AllFlags(true)
	for i := len(groups) - 1; i >= 0; i-- {
		for _, f := range groups[i] {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(f.String()), roff(f.Help))
		}
	}
	b.WriteString(".SH ENVIRONMENT\n.TP\n.B HOLDFAST_URL\nThe server. When it is not set: the server of the current context, else the one of the data directory, else http://127.0.0.1:4100.\n" +
		".TP\n.B HOLDFAST_CONTEXT\nThe context, where neither \\-\\-context nor a URL is given.\n" +
		".TP\n.B HOLDFAST_TOKEN\nThe bearer token. When it is not set: the key of the context, or without a context the owner's token in the data directory.\n" +
		".TP\n.B HOLDFAST_HOME\nThe data directory. When it is not set: $XDG_DATA_HOME/holdfast, else ~/.holdfast.\n")
	b.WriteString(".SH \"EXIT STATUS\"\n" + roff(exitCodes) + "\n")
	b.WriteString(".SH \"SEE ALSO\"\n")
	if node.Parent != nil {
		fmt.Fprintf(&b, ".BR %s (1)\n", roff(manName(node.Parent)))
	} else {
		b.WriteString("/docs of a running server shows its HTTP API.\n")
	}
	return b.String()
}

// synopsis returns the arguments and flags that may follow a command.
func synopsis(node *kong.Node) string {
	out := "[flags]"
	if len(node.Children) > 0 {
		out = "<command> [flags]"
	}
	for _, arg := range node.Positional {
		out += " " + arg.Summary()
	}
	return out
}

func manChildren(b *strings.Builder, node *kong.Node) {
	if len(node.Children) == 0 {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, child := range node.Children {
		if !child.Hidden {
			fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(manName(child)), roff(child.Help))
		}
	}
}

// manText renders a command's longer help: indented lines stay as they are.
func manText(b *strings.Builder, text string) {
	verbatim := false
	mode := func(on bool) {
		if on != verbatim {
			b.WriteString(map[bool]string{true: ".PP\n.EX\n", false: ".EE\n"}[on])
		}
		verbatim = on
	}
	gap := true
	for l := range strings.SplitSeq(text, "\n") {
		if l == "" {
			gap = true
			continue
		}
		if mode(strings.HasPrefix(l, "  ")); gap && !verbatim {
			b.WriteString(".PP\n")
		}
		gap = false
		b.WriteString(roff(l) + "\n")
	}
	mode(false)
}

// roff escapes text so that roff takes no line of it for a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
