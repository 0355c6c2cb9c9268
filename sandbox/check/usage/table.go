package usage

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed programs.txt
var programsText string

//go:embed git.txt
var gitText string

// Kind is the meaning of a value or an operand to its program.
type Kind uint8

// The kinds of values, operands and flags.
const (
	// Text is a value that is neither opened nor run.
	Text Kind = iota
	// Any is a value of unknown meaning, which may be the name of a file.
	Any
	// Read and Write are files and directories that the program opens to read or write.
	Read
	Write
	// Dir is a directory to which later relative names are relative.
	Dir
	// List is a file that contains the names of the files to work on.
	List
	// At is either text, or a file name behind an @.
	At
	// Load is a file with code that the program runs, Module the name of a code module.
	Load
	Module
	// Code is a program in the language of the program itself.
	Code
	// Sed and Awk are programs in the languages of sed and awk.
	Sed
	Awk
	// Shell is a line for a shell.
	Shell
	// Expand is text in which a shell expands variables and substitutions.
	Expand
	// Run is for options with which the program runs another program.
	Run
	// Ask is an option that is known, but too risky for the command line to be allowed automatically.
	Ask
	// Var names a shell variable, Assign sets an environment variable.
	Var
	Assign
	// Replace is the text that xargs replaces with its input.
	Replace
	// Exec is for options that begin a command, which ends with ; or +.
	Exec
	// Setting is a variable of make, with its value.
	Setting
	// Command is the first word of a command that the program runs.
	Command
	// The following kinds are options that change the meaning of all operands.
	// Writes: the operands are written. Refer: the option's value is read, the operands are
	// written. Target: the value is written, the operands are its sources. Deep: the operands
	// include everything below them. Unpack: files are written below the working directory.
	Writes
	Refer
	Target
	Deep
	Unpack
	// Quiet is for flags with which the program only prints something, such as --version.
	Quiet
	// Lookup is for flags with which a launcher runs nothing.
	Lookup
)

var kinds = map[string]Kind{
	"text": Text, "any": Any, "read": Read, "write": Write, "dir": Dir, "list": List, "at": At, "load": Load, "module": Module,
	"code": Code, "sed": Sed, "awk": Awk, "shell": Shell, "expand": Expand, "run": Run, "ask": Ask, "var": Var, "assign": Assign,
	"replace": Replace, "exec": Exec, "setting": Setting, "command": Command, "writes": Writes, "refer": Refer, "target": Target,
	"deep": Deep, "unpack": Unpack, "quiet": Quiet, "lookup": Lookup,
}

// opens reports whether a kind makes the program run or load something.
func (k Kind) opens() bool {
	switch k {
	case Load, Module, Code, Sed, Awk, Shell, Expand, Run, Ask, Exec, Setting, Command, Var, Assign:
		return true
	}
	return false
}

// Option is one option of a program.
type Option struct {
	// Name is the option with its dashes.
	Name string
	Kind Kind
	// Values is how many words the option takes as its value. Optional is true if the value may
	// be missing: only text attached to the option is its value then.
	Values   int
	Optional bool
	// Digits is true if digits that follow the option's letter are its value; other options may follow the digits
	// in the same word.
	Digits bool
	// Prefix is true if every word that begins with Name is this option, and the rest of the word is its value.
	Prefix bool
}

// Program describes the arguments of a program, or of one of its subcommands.
type Program struct {
	Name    string
	Options []Option
	// First: the first operand ends the options. Single: long options have one dash. Old:
	// the first word may be letters of options without a dash. Plus: + begins an option.
	// Strict: a line with an unknown option counts as not understood. Stdin: without an operand the
	// program executes code from standard input. Anywhere: options of the program may follow
	// its subcommand. Always: the program executes its input, whatever its arguments are.
	// Unread: the program runs other programs in ways that a table cannot describe.
	First, Single, Old, Plus, Strict, Stdin, Anywhere, Always, Unread bool
	// Open: options that are not in the table count as harmless flags. Runner: the program
	// only runs other programs, so that allowing it means allowing those. Free: its words
	// belong to a program that it runs, so that none is an option of its own.
	Open, Runner, Free bool
	// Numbers is true if an option may be a number, as in -5.
	Numbers bool
	// Subs are the subcommands; nil if the program has none.
	Subs map[string]*Program

	// operands are the kinds of the operands, by position. repeat is the index of the kind that
	// applies to any number of operands; -1 if each kind applies to one.
	operands []Kind
	repeat   int
	// words gives special words their kind as the first operand. instead lists options whose
	// value takes the place of the first operand.
	words   map[string]Kind
	instead []string
}

var load = sync.OnceValue(func() map[string]*Program {
	all, err := parse(programsText + "\n" + gitText)
	if err != nil {
		// This cannot happen: the tables are embedded and a test parses them. Without tables the
		// checker would accept command lines that it does not understand.
		panic(err)
	}
	return all
})

// Of returns the table of the program with that name, or nil if it has none.
func Of(name string) *Program { return load()[name] }

// Names lists all programs that have a table, in order.
func Names() []string { return slices.Sorted(maps.Keys(load())) }

// parser reads the text of tables.
type parser struct {
	programs map[string]*Program
	groups   map[string]*Program
	at       *Program
	// top is the program whose subcommands are being read.
	top []*Program
}

func parse(text string) (map[string]*Program, error) {
	p := &parser{programs: map[string]*Program{}, groups: map[string]*Program{}}
	var bad []error
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		var err error
		if line[0] != ' ' {
			err = p.head(words)
		} else {
			err = p.line(words)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("line %d: %q: %w", i+1, line, err))
		}
	}
	return p.programs, errors.Join(bad...)
}

// head reads the first line of a program, a group of options, or a subcommand in the table.
func (p *parser) head(words []string) error {
	prog := &Program{Name: words[0], repeat: -1}
	names := words
	if i := slices.Index(words, ":"); i >= 0 {
		names = words[:i]
		if err := prog.attributes(words[i+1:]); err != nil {
			return err
		}
	}
	p.at = prog
	switch names[0] {
	case "group":
		p.groups[names[1]] = prog
		return nil
	case "sub":
		if len(p.top) == 0 {
			return fmt.Errorf("a subcommand without a program before it")
		}
		for _, n := range names[1:] {
			if n == "*" {
				n = ""
			}
			for _, top := range p.top {
				if top.Subs == nil {
					top.Subs = map[string]*Program{}
				}
				top.Subs[n] = prog
			}
		}
		return nil
	}
	p.top = []*Program{prog}
	for _, n := range names {
		if p.programs[n] != nil {
			return fmt.Errorf("the program %s has two tables of options", n)
		}
		p.programs[n] = prog
	}
	return nil
}

func (prog *Program) attributes(words []string) error {
	for _, w := range words {
		flag := map[string]*bool{
			"first": &prog.First, "single": &prog.Single, "old": &prog.Old, "plus": &prog.Plus, "strict": &prog.Strict,
			"stdin": &prog.Stdin, "anywhere": &prog.Anywhere, "always": &prog.Always, "open": &prog.Open, "free": &prog.Free, "runner": &prog.Runner,
			"unread": &prog.Unread,
		}[w]
		if flag == nil {
			return fmt.Errorf("%s is not an attribute that a program can have", w)
		}
		*flag = true
	}
	return nil
}

// line reads a line of the table that head does not read, and adds its content to the program or group read last.
func (p *parser) line(words []string) error {
	if p.at == nil {
		return fmt.Errorf("options without a program before them")
	}
	switch words[0] {
	case "use":
		for _, g := range words[1:] {
			from := p.groups[g]
			if from == nil {
				return fmt.Errorf("%s is not the name of a group of options", g)
			}
			p.at.Options = append(p.at.Options, from.Options...)
			p.at.Numbers = p.at.Numbers || from.Numbers
		}
		return nil
	case "operands":
		return p.at.kinds(words[1:])
	case "instead":
		p.at.instead = words[1:]
		return nil
	}
	var err error
	kind, named := kinds[words[0]]
	if named {
		words = words[1:]
	}
	for _, w := range words {
		if w == "-#" {
			p.at.Numbers = true
			continue
		}
		if !strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "+") {
			if p.at.words == nil {
				p.at.words = map[string]Kind{}
			}
			p.at.words[w] = kind
			continue
		}
		err = errors.Join(err, p.at.add(w, kind))
	}
	return err
}

// add parses one word of the table, which may name several options, and adds these options of the given kind.
func (prog *Program) add(w string, kind Kind) error {
	o := Option{Kind: kind}
	for strings.HasSuffix(w, "=") {
		w, o.Values = strings.TrimSuffix(w, "="), o.Values+1
	}
	if name, ok := strings.CutSuffix(w, "?"); ok {
		w, o.Optional = name, true
	}
	if name, ok := strings.CutSuffix(w, "#"); ok && len(w) == 3 {
		w, o.Digits = name, true
	}
	if name, ok := strings.CutSuffix(w, "*"); ok {
		w, o.Prefix = name, true
	}
	names := []string{w}
	if !prog.Single && !o.Prefix && !strings.HasPrefix(w, "--") && w[0] == '-' {
		names = nil
		for _, c := range []byte(w[1:]) {
			names = append(names, "-"+string(c))
		}
	}
	last := o
	var err error
	for i, n := range names {
		// In a word with several letters, only the last letter takes the values.
		if o = (Option{Kind: kind}); i == len(names)-1 {
			o = last
		}
		o.Name = n
		for _, have := range prog.Options {
			if have.Name == n && have != o {
				err = errors.Join(err, fmt.Errorf("option %s was already added as %+v", n, have))
			}
		}
		prog.Options = append(prog.Options, o)
	}
	return err
}

func (prog *Program) kinds(words []string) error {
	for i, w := range words {
		name, many := strings.CutSuffix(w, "*")
		k, ok := kinds[name]
		if !ok {
			return fmt.Errorf("%s is not the name of a kind of operand", name)
		}
		if many {
			prog.repeat = i
		}
		prog.operands = append(prog.operands, k)
	}
	return nil
}

// operand returns the kind of the operand with index i, if there are n operands.
func (prog *Program) operand(i, n int) Kind {
	if len(prog.operands) == 0 {
		return Any
	}
	if prog.repeat < 0 {
		if i < len(prog.operands) {
			return prog.operands[i]
		}
		return Any
	}
	after := len(prog.operands) - 1 - prog.repeat
	switch {
	case i < prog.repeat:
		return prog.operands[i]
	case n-i <= after:
		return prog.operands[len(prog.operands)-(n-i)]
	}
	return prog.operands[prog.repeat]
}
