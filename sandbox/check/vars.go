package check

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// collect finds the variables and functions that the program sets, before it is analyzed:
// in a loop the program may use them before the text that sets them.
func (a *analyzer) collect(f *syntax.File) {
	if a.assigned == nil {
		a.assigned, a.text = map[string]bool{}, map[string]bool{}
	}
	if a.functions == nil {
		a.functions = map[string]bool{}
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		if fn, ok := n.(*syntax.FuncDecl); ok && fn.Name != nil {
			a.functions[fn.Name.Value] = true
		}
		return true
	})
	a.roams = a.roams || a.movesAbout(f)
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				a.assigned[n.Name.Value] = true
				if n.Append || n.Index != nil || n.Array != nil || n.Value == nil || !a.number(n.Value) {
					a.text[n.Name.Value] = true
				}
			}
		case *syntax.WordIter:
			if n.Name == nil {
				return true
			}
			a.assigned[n.Name.Value], a.text[n.Name.Value] = true, true
		case *syntax.FuncDecl:
			a.wandering = a.wandering || a.movesAbout(n)
		case *syntax.CallExpr:
			a.collectCall(n)
		}
		return true
	})
}

// collectCall finds variables that builtins set, also behind launchers such as command.
func (a *analyzer) collectCall(c *syntax.CallExpr) {
	sets := false
	for _, arg := range c.Args {
		w := a.reduce(arg)
		name, _, _ := strings.Cut(w.text, "=")
		switch {
		case w.kind != literal:
		case w.text == "eval" || w.text == "trap" || w.text == "source" || w.text == ".":
			a.evaluates = true
		case setsVariables[w.text]:
			sets = true
		case sets && identifier(name):
			a.assigned[name], a.text[name] = true, true
		}
	}
}

var setsVariables = map[string]bool{
	"read": true, "readarray": true, "mapfile": true, "printf": true, "getopts": true, "wait": true, "set": true,
	"declare": true, "typeset": true, "local": true, "export": true, "readonly": true, "unset": true,
}

// number reports whether the value of a word is certainly a number.
func (a *analyzer) number(w *syntax.Word) bool {
	r := a.reduce(w)
	return (r.kind == literal || r.kind == digits) && number(r.text)
}

func number(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// assign analyzes an assignment to a variable.
func (a *analyzer) assign(as *syntax.Assign) {
	if as.Name != nil {
		value := "$"
		switch {
		case as.Array != nil:
			a.opaque(CodeUnparsable, a.pos(as.Pos()), as.Name.Value, "the command sets an array, whose elements this checker does not follow")
		case as.Value == nil:
			value = ""
		default:
			if w := a.reduce(as.Value); w.kind != computed {
				value = w.text
			}
		}
		a.sets(as.Name.Value, value, a.pos(as.Pos()))
	}
	if as.Index != nil {
		a.subscript(as.Index)
	}
	if as.Value != nil {
		a.inside(as.Value)
	}
	if as.Array != nil {
		for _, e := range as.Array.Elems {
			if e.Index != nil {
				a.subscript(e.Index)
			}
			if e.Value != nil {
				a.inside(e.Value)
			}
		}
	}
}

// sets records that a variable is set: as opaque if that changes what commands mean, as unsure if
// the variable may name a program. A value that contains a dollar is treated as not known.
func (a *analyzer) sets(name, value string, pos int) {
	switch {
	case meansMore(name, value):
		a.opaque(CodeRebinding, pos, name, "setting this variable changes what commands mean or do")
	case loads(name, value):
		a.unsure(pos, name, "programs use this variable to find or load other programs")
	}
}

// setsText records, like sets, the setting of a variable that may later hold any text.
func (a *analyzer) setsText(name, value string, pos int) {
	a.assigned[name], a.text[name] = true, true
	a.sets(name, value, pos)
}

// forOneRead reports whether an assignment sets IFS for one read command. That is harmless:
// it only splits the line that read reads, and IFS is restored afterwards.
func (a *analyzer) forOneRead(as *syntax.Assign, words []word) bool {
	return as.Name != nil && as.Name.Value == "IFS" && as.Array == nil && as.Index == nil &&
		len(words) > 0 && words[0].kind == literal && words[0].text == "read" && !a.functions["read"]
}

// prefixed checks a variable that is set for one command. A program that has options which
// run other programs probably has variables that do so too.
func (a *analyzer) prefixed(name string, first word) {
	if p := tableOf(baseName(first.text)); p != nil && p.Opens() && !said(name) && !meansMore(name, "$") && !loads(name, "$") {
		a.unsure(first.pos, name, "it is not known what "+baseName(first.text)+" does with this variable")
	}
}

// declare analyzes the commands declare, local, export, readonly and typeset.
func (a *analyzer) declare(c *syntax.DeclClause) {
	pos := a.pos(c.Pos())
	var words []word
	for _, as := range c.Args {
		if as.Name == nil && as.Value != nil {
			w := a.reduce(as.Value)
			a.inside(as.Value)
			words = append(words, w)
			continue
		}
		a.assign(as)
		w := word{text: as.Name.Value, pos: a.pos(as.Pos())}
		if as.Value != nil {
			v := a.reduce(as.Value).after(as.Name.Value + "=")
			w.text, w.kind, w.marks = v.text, v.kind, v.marks
		}
		words = append(words, w)
	}
	a.emit(c.Variant.Value, words, pos)
	a.declared(words, pos)
}

// declared checks the arguments of declare and similar builtins: their options, and the variables that they set.
func (a *analyzer) declared(words []word, pos int) {
	for _, w := range words {
		name, value, _ := strings.Cut(w.text, "=")
		switch {
		case strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "+"):
			// With -i values are evaluated as arithmetic; with -n the name means another variable.
			if w.kind != literal || strings.ContainsAny(w.text, "in") {
				a.opaque(CodeComputed, pos, w.text, "the declaration may evaluate its values, which may run commands")
			}
		case w.kind == computed && !identifier(name), !identifier(strings.TrimSuffix(name, "+")):
			a.opaque(CodeComputed, pos, w.text, "the name of a variable has to be written out literally")
		default:
			a.sets(strings.TrimSuffix(name, "+"), value, pos)
		}
	}
}

// named checks the arguments of a builtin such as read, each of which names a variable that the builtin sets.
func (a *analyzer) named(words []word, pos int) {
	for _, w := range words {
		switch {
		case w.kind == digits:
		case w.kind != literal:
			a.opaque(CodeComputed, pos, w.text, "the name of a variable has to be written out literally")
		case strings.Contains(w.text, "["):
			a.opaque(CodeComputed, pos, w.text, "the shell evaluates the subscript, which may run commands")
		case identifier(w.text):
			a.sets(w.text, "$", pos)
		}
	}
}

// param analyzes the effects of a parameter expansion besides its value.
func (a *analyzer) param(p *syntax.ParamExp) {
	pos := a.pos(p.Pos())
	if p.Excl && p.Names == 0 {
		a.opaque(CodeComputed, pos, "${!…}", "another variable's value names the variable that is expanded")
	}
	if p.Exp != nil && p.Exp.Op == syntax.OtherParamOps && p.Exp.Word != nil && strings.ContainsAny(p.Exp.Word.Lit(), "PA") {
		a.opaque(CodeComputed, pos, "${…@P}", "the value is expanded once more, which may run commands")
	}
	if p.Exp != nil && (p.Exp.Op == syntax.AssignUnset || p.Exp.Op == syntax.AssignUnsetOrNull) && p.Param != nil {
		a.sets(p.Param.Value, "$", pos)
	}
	if p.Index != nil {
		a.subscript(p.Index)
	}
	if p.Slice != nil {
		for _, x := range []syntax.ArithmExpr{p.Slice.Offset, p.Slice.Length} {
			if x != nil {
				a.arithmetic(x)
			}
		}
	}
}

// subscript analyzes the index of an array; @ and * mean all elements.
func (a *analyzer) subscript(x syntax.ArithmExpr) {
	if w, ok := x.(*syntax.Word); ok && (w.Lit() == "@" || w.Lit() == "*") {
		return
	}
	a.arithmetic(x)
}

// arithmetic analyzes an arithmetic expression. Bash evaluates the values of its variables
// as expressions too, and runs the substitutions in them: only numbers are safe.
func (a *analyzer) arithmetic(x syntax.ArithmExpr) {
	syntax.Walk(x, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Lit:
			if identifier(n.Value) && a.holdsText(n.Value) {
				a.opaque(CodeComputed, a.pos(n.Pos()), n.Value, "arithmetic over a variable that may hold more than a number may run commands")
			}
		case *syntax.ParamExp:
			a.param(n)
			if n.Param != nil && !n.Length && (a.holdsText(n.Param.Value) || number(n.Param.Value) || strings.ContainsAny(n.Param.Value, "@*") || n.Exp != nil || n.Repl != nil) {
				a.opaque(CodeComputed, a.pos(n.Pos()), "$"+n.Param.Value, "arithmetic over a variable that may hold more than a number may run commands")
			}
			return false
		case *syntax.CmdSubst, *syntax.ProcSubst:
			a.opaque(CodeComputed, a.pos(n.Pos()), "$(…)", "arithmetic over the output of a command may run commands")
			if c, ok := n.(*syntax.CmdSubst); ok {
				a.apart(func() { a.stmts(c.Stmts) })
			}
			return false
		case *syntax.SglQuoted:
			if !number(n.Value) {
				a.opaque(CodeComputed, a.pos(n.Pos()), n.Value, "arithmetic over text may run commands")
			}
		}
		return true
	})
}

// holdsText reports whether a variable may hold more than a number.
func (a *analyzer) holdsText(name string) bool {
	return a.text[name] || a.evaluates
}

// test analyzes the expression in [[ ]].
func (a *analyzer) test(x syntax.TestExpr) {
	switch x := x.(type) {
	case *syntax.Word:
		a.inside(x)
	case *syntax.ParenTest:
		a.test(x.X)
	case *syntax.UnaryTest:
		a.test(x.X)
		if w, ok := x.X.(*syntax.Word); ok && (x.Op == syntax.TsVarSet || x.Op == syntax.TsRefVar) && !identifier(w.Lit()) {
			a.opaque(CodeComputed, a.pos(w.Pos()), "", "the shell evaluates the subscript, which may run commands")
		}
	case *syntax.BinaryTest:
		a.test(x.X)
		a.test(x.Y)
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			for _, e := range []syntax.TestExpr{x.X, x.Y} {
				if w, ok := e.(*syntax.Word); ok {
					a.arithmetic(w)
				}
			}
		}
	}
}
