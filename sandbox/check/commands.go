package check

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call analyzes a simple command with its assignments and redirections.
func (a *analyzer) call(c *syntax.CallExpr, redirs []*syntax.Redirect) {
	words := a.words(c.Args)
	a.out.MoreThanCommands = a.out.MoreThanCommands || len(c.Assigns) > 0
	for _, as := range c.Assigns {
		if !a.forOneRead(as, words) {
			a.assign(as)
		} else if as.Value != nil {
			a.inside(as.Value)
		}
		if len(words) > 0 && as.Name != nil {
			a.prefixed(as.Name.Value, words[0])
		}
	}
	for _, w := range c.Args {
		a.inside(w)
	}
	if len(c.Args) == 0 {
		return
	}
	if len(words) > 0 {
		a.simple(words, a.input(redirs))
	}
}

// emit appends a command to the commands that were found.
func (a *analyzer) emit(name string, words []word, pos int) {
	a.left.spend(1 + len(words))
	cmd := Command{Name: name, Pos: pos, words: words, cwds: a.cwds, Lent: a.lent, Here: len(a.cwds) == 1 && a.cwds[0] == a.start}
	for _, w := range words {
		cmd.Args = append(cmd.Args, w.text)
		cmd.Computed = cmd.Computed || w.kind != literal
	}
	a.out.Commands = append(a.out.Commands, cmd)
}

// simple analyzes a command that is given as words, from the program or from a launcher.
func (a *analyzer) simple(words []word, in input) {
	first := words[0]
	if first.kind != literal || first.brace {
		a.opaque(CodeComputed, first.pos, first.text, "the name of a command has to be written out literally")
		return
	}
	a.emit(first.text, words[1:], first.pos)
	name := baseName(first.text)
	if a.functions[name] && a.wandering {
		a.cwds = nil
	}
	if r := roleOf(name); r != 0 {
		a.play(r, first, words[1:], in)
		return
	}
	if p := tableOf(name); p != nil {
		a.used(p, first, words[1:], in)
	}
}

// redirect records the file of a redirection and analyzes programs in its words.
func (a *analyzer) redirect(r *syntax.Redirect) {
	a.out.MoreThanCommands = a.out.MoreThanCommands || !a.redirectsNothing(r)
	a.inside(r.Word)
	if r.Hdoc != nil {
		a.inside(r.Hdoc)
	}
	if (r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc) && !plainDelimiter(r.Word) {
		a.opaque(CodeUnparsable, a.pos(r.Pos()), "", "shells read the delimiter of this here-document differently")
	}
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		a.sets(strings.Trim(r.N.Value, "{}"), "$", a.pos(r.Pos()))
	}
	var ops []Op
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	case syntax.RdrIn:
		ops = []Op{Read}
	case syntax.RdrInOut:
		ops = []Op{Read, Write}
	default:
		ops = []Op{Write}
	}
	for _, w := range a.expanded(r.Word) {
		if (r.Op == syntax.DplIn || r.Op == syntax.DplOut) && w.kind == literal && strings.Trim(w.text, "0123456789-") == "" || w.kind == stream {
			continue
		}
		a.out.Redirects = append(a.out.Redirects, Redirect{Path: w.text, Writes: slices.Contains(ops, Write), Pos: w.pos, target: w, ops: ops, cwds: a.cwds})
	}
}

// redirectsNothing reports whether a redirection only copies or closes a descriptor, or discards output.
func (a *analyzer) redirectsNothing(r *syntax.Redirect) bool {
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if r.N != nil && !digits(r.N.Value) {
		return false
	}
	w := a.reduce(r.Word)
	switch r.Op {
	case syntax.DplOut:
		return w.kind == literal && (w.text == "-" || digits(w.text))
	case syntax.RdrOut, syntax.AppOut, syntax.RdrAll, syntax.AppAll:
		return w.kind == literal && w.text == "/dev/null"
	}
	return false
}

// inside analyzes the programs in a word: command and process substitutions, and programs
// that arithmetic or an expansion could run.
func (a *analyzer) inside(w *syntax.Word) {
	if w == nil || w.Lit() != "" {
		return
	}
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			a.out.MoreThanCommands = true
			a.apart(func() { a.stmts(n.Stmts) })
			return false
		case *syntax.ProcSubst:
			a.out.MoreThanCommands = true
			a.apart(func() { a.stmts(n.Stmts) })
			return false
		case *syntax.ArithmExp:
			a.arithmetic(n.X)
			return false
		case *syntax.ParamExp:
			a.param(n)
		case *syntax.ExtGlob:
			if strings.ContainsAny(n.Pattern.Value, "$`") {
				a.opaque(CodeUnparsable, a.pos(n.Pos()), n.Pattern.Value, "a pattern contains a substitution, which this checker does not read")
			}
		}
		return true
	})
}
