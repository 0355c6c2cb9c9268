package main

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// The completion scripts know no commands: on each Tab they run this program for the candidates.
//
//go:embed completion/holdfast.bash
var bashScript string

//go:embed completion/holdfast.zsh
var zshScript string

//go:embed completion/holdfast.fish
var fishScript string

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*completionCmd) Help() string {
	return `Completes commands, flags and their values, and, while the server answers, session ids and agent names.

Examples:
  source <(holdfast completion bash)               # in ~/.bashrc
  holdfast completion zsh > ~/.zfunc/_holdfast     # a directory of $fpath
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish`
}

// Run prints the completion script of the shell.
func (c *completionCmd) Run(e *env) error {
	script := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell]
	_, err := io.WriteString(e.stdout, script)
	return err
}

// completeTimeout is how long a key press may wait for the server.
const completeTimeout = 700 * time.Millisecond

// filesHere is the candidate that tells the shell to complete the names of local files by itself.
const filesHere = ":files"

type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints the candidates for the last word, one a line, each with its description after a
// tab. Errors of the server are ignored: nobody would read them.
func (c *completeCmd) Run(e *env) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	parser, err := newParser(&cli{}, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	for _, found := range complete(e, parser.Model.Node, words) {
		fmt.Fprintln(e.stdout, strings.TrimRight(found.value+"\t"+line(found.help), "\t"))
	}
	return nil
}

type candidate struct{ value, help string }

// complete follows the words before the last one through the command tree, and returns the
// candidates that may come next and begin like the last word.
func complete(e *env, node *kong.Node, words []string) []candidate {
	// bash cuts --flag=value into three words.
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "=" })
	if len(words) == 0 {
		words = []string{""}
	}
	last := strings.ReplaceAll(words[len(words)-1], `\`, "") // bash passes words with their backslashes
	var wants *kong.Flag                                     // the flag whose value is the next word
	args, literal := 0, false
	for _, w := range words[:len(words)-1] {
		name, value, whole := strings.Cut(w, "=")
		switch {
		case wants != nil:
			e.learn(wants, w)
			wants = nil
		case w == "--":
			literal = true
		case !literal && len(w) > 1 && w[0] == '-':
			if f := flagOf(node, name); f != nil && whole {
				e.learn(f, value)
			} else if f != nil && !f.IsBool() {
				wants = f
			}
		default:
			if child := childOf(node, w); child != nil && args == 0 {
				node = child
			} else {
				args++
			}
		}
	}
	var found []candidate
	name, _, whole := strings.Cut(last, "=")
	switch {
	case wants != nil:
		found = e.values(node, wants.Value, last)
	case !literal && whole && strings.HasPrefix(last, "-"):
		if f := flagOf(node, name); f != nil {
			for _, one := range e.values(node, f.Value, last[len(name)+1:]) {
				found = append(found, candidate{name + "=" + one.value, one.help})
			}
		}
	case !literal && strings.HasPrefix(last, "-"):
		found = flagsOf(node)
	default:
		found = e.words(node, args, last)
	}
	return slices.DeleteFunc(found, func(c candidate) bool {
		return c.value != filesHere && !strings.HasPrefix(strings.ToLower(c.value), strings.ToLower(last))
	})
}

// learn records the server that a --url or --context on the typed line chooses.
func (e *env) learn(f *kong.Flag, value string) {
	switch f.Name {
	case "url":
		e.url = value
	case "context":
		e.contextName = value
	}
}

// words returns the subcommands of a node and the values of its next argument.
func (e *env) words(node *kong.Node, args int, last string) (found []candidate) {
	for _, child := range node.Children {
		if !child.Hidden && args == 0 {
			found = append(found, candidate{child.Name, child.Help})
		}
	}
	if n := len(node.Positional); n > 0 {
		arg := node.Positional[min(args, n-1)]
		if args < n || arg.IsCumulative() {
			found = append(found, e.values(node, arg, last)...)
		}
	}
	return found
}

func flagsOf(node *kong.Node) (found []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			found = append(found, candidate{"--" + f.Name, f.Help})
		}
	}
	return found
}

func flagOf(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}
