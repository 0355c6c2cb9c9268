package mem

import (
	"fmt"
	"strings"
)

// The shell's syntax tree. It is the part of the POSIX shell that tests and
// small scripts use; everything else is a syntax error, never something else.
type (
	list []item
	item struct {
		andOr      andOr
		background bool
	}
	andOr struct {
		first pipeline
		rest  []link
	}
	link struct {
		and  bool
		next pipeline
	}
	pipeline struct {
		negate bool
		cmds   []command
	}
	command interface{}

	simple struct {
		assigns []assign
		words   []word
		redirs  []redir
	}
	assign struct {
		name  string
		value word
	}
	redir struct {
		fd     int
		op     string // > >> < >&
		target word
	}
	compound struct {
		body     list
		subshell bool
		redirs   []redir
	}
	ifClause struct {
		cond, then, els list
	}
	whileLoop struct {
		until      bool
		cond, body list
	}
	forLoop struct {
		name  string
		words []word
		body  list
	}

	word []part
	part struct {
		kind   partKind
		text   string
		quoted bool
		sub    list
	}
	partKind int
)

const (
	partText partKind = iota + 1
	partVar
	partSub
	partArith
)

// parser builds the tree by recursive descent.
type parser struct {
	lex *lexer
	tok token
	err error
}

// maxDepth bounds nesting: the script is the model's.
const maxDepth = 100

func parse(src string) (list, error) {
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

// keyword is the text of an unquoted single-part word.
func (p *parser) keyword() string {
	if p.tok.op == "" && len(p.tok.word) == 1 && p.tok.word[0].kind == partText && !p.tok.word[0].quoted {
		return p.tok.word[0].text
	}
	return ""
}

func (p *parser) newlines() {
	for p.tok.op == "\n" {
		p.advance()
	}
}

// list reads items up to one of the closing operators or keywords.
func (p *parser) list(closing ...string) (list, error) {
	if p.lex.depth++; p.lex.depth > maxDepth {
		return nil, syntaxError("nested too deeply")
	}
	defer func() { p.lex.depth-- }()
	var out list
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
		it := item{andOr: ao, background: p.tok.op == "&"}
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

func (p *parser) andOr() (andOr, error) {
	first, err := p.pipeline()
	if err != nil {
		return andOr{}, err
	}
	ao := andOr{first: first}
	for p.tok.op == "&&" || p.tok.op == "||" {
		and := p.tok.op == "&&"
		p.advance()
		p.newlines()
		next, err := p.pipeline()
		if err != nil {
			return andOr{}, err
		}
		ao.rest = append(ao.rest, link{and: and, next: next})
	}
	return ao, nil
}

func (p *parser) pipeline() (pipeline, error) {
	var pl pipeline
	if p.keyword() == "!" {
		pl.negate = true
		p.advance()
	}
	for {
		c, err := p.command()
		if err != nil {
			return pl, err
		}
		pl.cmds = append(pl.cmds, c)
		if p.tok.op != "|" {
			return pl, nil
		}
		p.advance()
		p.newlines()
	}
}

func (p *parser) command() (command, error) {
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
		return whileLoop{until: until, cond: cond, body: body}, err
	case "for":
		return p.forLoop()
	case "{":
		p.advance()
		body, err := p.block("}")
		if err != nil {
			return nil, err
		}
		redirs, err := p.redirs()
		return compound{body: body, redirs: redirs}, err
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
		return compound{body: body, subshell: true, redirs: redirs}, err
	}
	return p.simple()
}

// block reads a list and the word that closes it.
func (p *parser) block(closing string) (list, error) {
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
		return syntaxError(fmt.Sprintf("%q instead of %q", p.show(), s))
	}
	p.advance()
	return nil
}

func (p *parser) ifClause() (command, error) {
	p.advance()
	cond, err := p.block("then")
	if err != nil {
		return nil, err
	}
	then, err := p.list("fi", "else", "elif")
	if err != nil {
		return nil, err
	}
	c := ifClause{cond: cond, then: then}
	switch p.keyword() {
	case "elif":
		nested, err := p.ifClause()
		c.els = list{{andOr: andOr{first: pipeline{cmds: []command{nested}}}}}
		return c, err
	case "else":
		p.advance()
		c.els, err = p.list("fi")
		if err != nil {
			return nil, err
		}
	}
	return c, p.expect("fi")
}

func (p *parser) forLoop() (command, error) {
	p.advance()
	f := forLoop{name: p.keyword()}
	if !isName(f.name) {
		return nil, syntaxError("for without a name")
	}
	p.advance()
	if err := p.expect("in"); err != nil {
		return nil, err
	}
	for p.tok.op == "" && !p.tok.end {
		f.words = append(f.words, p.tok.word)
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
	f.body, err = p.block("done")
	return f, err
}

func (p *parser) simple() (command, error) {
	var c simple
	for {
		r, ok, err := p.redir()
		switch {
		case err != nil:
			return nil, err
		case ok:
			c.redirs = append(c.redirs, r)
			continue
		case p.tok.end || p.tok.op != "":
			if len(c.words) == 0 && len(c.assigns) == 0 && len(c.redirs) == 0 {
				if p.err != nil {
					return nil, p.err
				}
				return nil, syntaxError(fmt.Sprintf("unexpected %q", p.show()))
			}
			return c, nil
		}
		w := p.tok.word
		if a, ok := asAssign(w); ok && len(c.words) == 0 {
			c.assigns = append(c.assigns, a)
		} else {
			c.words = append(c.words, w)
		}
		p.advance()
	}
}

func asAssign(w word) (assign, bool) {
	if len(w) == 0 || w[0].kind != partText || w[0].quoted {
		return assign{}, false
	}
	name, value, ok := strings.Cut(w[0].text, "=")
	if !ok || !isName(name) {
		return assign{}, false
	}
	rest := append(word{{kind: partText, text: value}}, w[1:]...)
	return assign{name: name, value: rest}, true
}

func isName(s string) bool {
	for i := range len(s) {
		if !nameByte(s[i], i == 0) {
			return false
		}
	}
	return s != ""
}

func (p *parser) redirs() ([]redir, error) {
	var out []redir
	for {
		r, ok, err := p.redir()
		if err != nil || !ok {
			return out, err
		}
		out = append(out, r)
	}
}

func (p *parser) redir() (redir, bool, error) {
	op := strings.TrimLeft(p.tok.op, "12")
	if op != ">" && op != ">>" && op != "<" && op != ">&" {
		return redir{}, false, p.err
	}
	r := redir{op: op, fd: 1}
	if op == "<" {
		r.fd = 0
	}
	if p.tok.op[0] == '2' {
		r.fd = 2
	}
	p.advance()
	if p.tok.op != "" || p.tok.end || len(p.tok.word) == 0 {
		return r, false, syntaxError("redirection without a target")
	}
	r.target = p.tok.word
	p.advance()
	return r, true, nil
}
