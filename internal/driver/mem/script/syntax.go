package script

import (
	"fmt"
	"strings"
)

type (
	// List is a script, or the list of commands inside another command.
	List []Item
	// Item is one element of a list: pipelines joined by && and ||, run in the background or not.
	Item struct {
		AndOr      AndOr
		Background bool
	}
	// AndOr is a pipeline and the pipelines that follow it after && or ||.
	AndOr struct {
		First Pipeline
		Rest  []Link
	}
	// Link is a pipeline that runs only if the one before succeeded (And) or failed (not And).
	Link struct {
		And  bool
		Next Pipeline
	}
	// Pipeline is one or more commands, each of which reads the output of the one before.
	Pipeline struct {
		Negate   bool
		Commands []Command
	}
	// Command is a Simple, Compound, If, While or For.
	Command interface{}

	// Simple is a program with arguments, or only assignments.
	Simple struct {
		Assigns []Assign
		Words   []Word
		Redirs  []Redir
	}
	// Assign assigns a value to a variable.
	Assign struct {
		Name  string
		Value Word
	}
	// Redir redirects a descriptor to a file or to another descriptor.
	Redir struct {
		FD     int
		Op     string // > >> < >&
		Target Word
	}
	// Compound is a group, { list; }, or a subshell, ( list ).
	Compound struct {
		Body     List
		Subshell bool
		Redirs   []Redir
	}
	// If is an if command; an elif is an If in Else.
	If struct {
		Cond, Then, Else List
	}
	// While is a while or an until loop.
	While struct {
		Until      bool
		Cond, Body List
	}
	// For is the loop: for Name in Words.
	For struct {
		Name  string
		Words []Word
		Body  List
	}

	// Word is a sequence of parts whose expansions are joined.
	Word []Part
	// Part is a piece of a word. Text is its text, the name of its variable, or its sum; Sub is
	// the list of a substitution.
	Part struct {
		Kind   Kind
		Text   string
		Quoted bool
		Sub    List
	}
	// Kind is how a part is expanded.
	Kind int
)

// The kinds of parts.
const (
	Text Kind = iota + 1
	Variable
	Substitution
	Arithmetic
)

// parser builds the tree by recursive descent.
type parser struct {
	lex *lexer
	tok token
	err error
}

// maxDepth is how deep a script may be nested: a model writes the script.
const maxDepth = 100

// Parse parses a script.
func Parse(src string) (List, error) {
	p := &parser{lex: &lexer{src: src}}
	p.advance()
	l, err := p.list()
	if err == nil {
		err = p.err
	}
	if err == nil && !p.tok.end {
		err = syntaxError(fmt.Sprintf("unexpected %q", p.show()))
	}
	return l, err
}

func (p *parser) advance() {
	if p.err == nil {
		p.tok, p.err = p.lex.next()
	}
	if p.err != nil {
		p.tok = token{end: true}
	}
}

func (p *parser) show() string {
	if p.tok.end {
		return "end of script"
	}
	if p.tok.op != "" {
		return p.tok.op
	}
	return p.keyword()
}

// keyword returns the text of the current token if it is an unquoted word of one part, else "".
func (p *parser) keyword() string {
	if p.tok.op == "" && len(p.tok.word) == 1 && p.tok.word[0].Kind == Text && !p.tok.word[0].Quoted {
		return p.tok.word[0].Text
	}
	return ""
}

func (p *parser) newlines() {
	for p.tok.op == "\n" {
		p.advance()
	}
}

// list reads items up to one of the closing operators or keywords.
func (p *parser) list(closing ...string) (List, error) {
	if p.lex.depth++; p.lex.depth > maxDepth {
		return nil, syntaxError("nested too deeply")
	}
	defer func() { p.lex.depth-- }()
	var out List
	for {
		p.newlines()
		if p.tok.end {
			return out, p.err
		}
		for _, c := range closing {
			if p.tok.op == c || p.keyword() == c {
				return out, nil
			}
		}
		ao, err := p.andOr()
		if err != nil {
			return nil, err
		}
		it := Item{AndOr: ao, Background: p.tok.op == "&"}
		out = append(out, it)
		switch {
		case p.tok.op == ";" || p.tok.op == "&" || p.tok.op == "\n":
			p.advance()
		case p.tok.op == ")" || p.tok.end:
		default:
			return nil, syntaxError(fmt.Sprintf("unexpected %q", p.show()))
		}
	}
}

func (p *parser) andOr() (AndOr, error) {
	first, err := p.pipeline()
	if err != nil {
		return AndOr{}, err
	}
	ao := AndOr{First: first}
	for p.tok.op == "&&" || p.tok.op == "||" {
		and := p.tok.op == "&&"
		p.advance()
		p.newlines()
		next, err := p.pipeline()
		if err != nil {
			return AndOr{}, err
		}
		ao.Rest = append(ao.Rest, Link{And: and, Next: next})
	}
	return ao, nil
}

func (p *parser) pipeline() (Pipeline, error) {
	var pl Pipeline
	if p.keyword() == "!" {
		pl.Negate = true
		p.advance()
	}
	for {
		c, err := p.command()
		if err != nil {
			return pl, err
		}
		pl.Commands = append(pl.Commands, c)
		if p.tok.op != "|" {
			return pl, nil
		}
		p.advance()
		p.newlines()
	}
}

func (p *parser) command() (Command, error) {
	switch p.keyword() {
	case "if":
		return p.ifClause()
	case "while", "until":
		until := p.keyword() == "until"
		p.advance()
		cond, err := p.block("do")
		if err != nil {
			return nil, err
		}
		body, err := p.block("done")
		return While{Until: until, Cond: cond, Body: body}, err
	case "for":
		return p.forLoop()
	case "{":
		p.advance()
		body, err := p.block("}")
		if err != nil {
			return nil, err
		}
		redirs, err := p.redirs()
		return Compound{Body: body, Redirs: redirs}, err
	}
	switch p.keyword() {
	case "then", "else", "elif", "fi", "do", "done", "}", "in", "case", "esac", "function", "select":
		return nil, syntaxError(fmt.Sprintf("unexpected %q", p.show()))
	}
	if p.tok.op == "(" {
		p.advance()
		body, err := p.block(")")
		if err != nil {
			return nil, err
		}
		redirs, err := p.redirs()
		return Compound{Body: body, Subshell: true, Redirs: redirs}, err
	}
	return p.simple()
}

// block reads a list and the keyword that closes it.
func (p *parser) block(closing string) (List, error) {
	body, err := p.list(closing)
	if err == nil {
		err = p.expect(closing)
	}
	return body, err
}

func (p *parser) expect(s string) error {
	if p.err != nil {
		return p.err
	}
	if p.tok.op != s && p.keyword() != s || s == "" {
		return syntaxError(fmt.Sprintf("found %q instead of %q", p.show(), s))
	}
	p.advance()
	return nil
}

func (p *parser) ifClause() (Command, error) {
	p.advance()
	cond, err := p.block("then")
	if err != nil {
		return nil, err
	}
	then, err := p.list("fi", "else", "elif")
	if err != nil {
		return nil, err
	}
	c := If{Cond: cond, Then: then}
	switch p.keyword() {
	case "elif":
		nested, err := p.ifClause()
		c.Else = List{{AndOr: AndOr{First: Pipeline{Commands: []Command{nested}}}}}
		return c, err
	case "else":
		p.advance()
		c.Else, err = p.list("fi")
		if err != nil {
			return nil, err
		}
	}
	return c, p.expect("fi")
}

func (p *parser) forLoop() (Command, error) {
	p.advance()
	f := For{Name: p.keyword()}
	if !isName(f.Name) {
		return nil, syntaxError("a for loop has no variable name")
	}
	p.advance()
	if err := p.expect("in"); err != nil {
		return nil, err
	}
	for p.tok.op == "" && !p.tok.end {
		f.Words = append(f.Words, p.tok.word)
		p.advance()
	}
	if p.tok.op == ";" {
		p.advance()
	}
	p.newlines()
	if err := p.expect("do"); err != nil {
		return nil, err
	}
	var err error
	f.Body, err = p.block("done")
	return f, err
}

func (p *parser) simple() (Command, error) {
	var c Simple
	for {
		r, ok, err := p.redir()
		switch {
		case err != nil:
			return nil, err
		case ok:
			c.Redirs = append(c.Redirs, r)
			continue
		case p.tok.end || p.tok.op != "":
			if len(c.Words) == 0 && len(c.Assigns) == 0 && len(c.Redirs) == 0 {
				if p.err != nil {
					return nil, p.err
				}
				return nil, syntaxError(fmt.Sprintf("unexpected %q", p.show()))
			}
			return c, nil
		}
		w := p.tok.word
		if a, ok := asAssign(w); ok && len(c.Words) == 0 {
			c.Assigns = append(c.Assigns, a)
		} else {
			c.Words = append(c.Words, w)
		}
		p.advance()
	}
}

func asAssign(w Word) (Assign, bool) {
	if len(w) == 0 || w[0].Kind != Text || w[0].Quoted {
		return Assign{}, false
	}
	name, value, ok := strings.Cut(w[0].Text, "=")
	if !ok || !isName(name) {
		return Assign{}, false
	}
	rest := append(Word{{Kind: Text, Text: value}}, w[1:]...)
	return Assign{Name: name, Value: rest}, true
}

func isName(s string) bool {
	for i := range len(s) {
		if !nameByte(s[i], i == 0) {
			return false
		}
	}
	return s != ""
}

func (p *parser) redirs() ([]Redir, error) {
	var out []Redir
	for {
		r, ok, err := p.redir()
		if err != nil || !ok {
			return out, err
		}
		out = append(out, r)
	}
}

func (p *parser) redir() (Redir, bool, error) {
	op := strings.TrimLeft(p.tok.op, "12")
	if op != ">" && op != ">>" && op != "<" && op != ">&" {
		return Redir{}, false, p.err
	}
	r := Redir{Op: op, FD: 1}
	if op == "<" {
		r.FD = 0
	}
	if p.tok.op[0] == '2' {
		r.FD = 2
	}
	p.advance()
	if p.tok.op != "" || p.tok.end || len(p.tok.word) == 0 {
		return r, false, syntaxError("a redirection has no target")
	}
	r.Target = p.tok.word
	p.advance()
	return r, true, nil
}
