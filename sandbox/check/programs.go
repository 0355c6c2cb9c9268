package check

import "strings"

// role says which special check a command needs besides that of its name and options: it changes the shell that
// it runs in, or it is a shell.
type role uint8

const (
	roleShell role = iota + 1
	roleSource
	roleEval
	roleTrap
	roleAlias
	roleMove
	roleOptions
	roleDeclare
	roleTest
	roleLet
)

// roles has the role of each command that changes the shell it runs in, or is a shell.
var roles = newRoles()

func newRoles() map[string]role {
	out := map[string]role{
		"eval": roleEval, "source": roleSource, ".": roleSource, "trap": roleTrap, "alias": roleAlias,
		"cd": roleMove, "pushd": roleMove, "popd": roleMove, "shopt": roleOptions, "set": roleOptions,
		"test": roleTest, "[": roleTest, "let": roleLet,
		"declare": roleDeclare, "typeset": roleDeclare, "local": roleDeclare, "export": roleDeclare, "readonly": roleDeclare,
	}
	for name := range dialects {
		out[name] = roleShell
	}
	return out
}

// roleOf returns the role of a command, 0 if none. A version in a shell's name is ignored.
func roleOf(name string) role {
	if r := roles[name]; r != 0 {
		return r
	}
	if r := roles[withoutVersion(name)]; r == roleShell {
		return r
	}
	return 0
}

// play runs, on a command and its words, the special check for a role.
func (a *analyzer) play(r role, first word, words []word, in input) {
	switch r {
	case roleShell:
		a.shell(first, words, in)
	case roleSource:
		a.source(first, words)
	case roleEval:
		a.evaluate(first, words)
	case roleTrap:
		a.trap(first, words)
	case roleAlias:
		a.alias(words)
	case roleMove:
		a.move(first, words)
	case roleOptions:
		a.setOption(words)
	case roleDeclare:
		a.declared(words, first.pos)
	case roleTest:
		a.testBuiltin(first, words)
	case roleLet:
		for _, w := range words {
			if w.kind != literal || strings.ContainsAny(w.text, "$`[") {
				a.opaque(CodeComputed, first.pos, w.text, "arithmetic over text may run commands")
			}
		}
	}
}

func (a *analyzer) alias(words []word) {
	for _, w := range words {
		if w.kind != literal || strings.ContainsAny(w.text, "=") {
			a.opaque(CodeRebinding, w.pos, w.text, "an alias gives a name another meaning")
			return
		}
	}
}

func (a *analyzer) setOption(words []word) {
	for _, w := range words {
		if w.kind == literal && (w.text == "expand_aliases" || w.text == "extdebug" || w.text == "lastpipe" || w.text == "posix") {
			a.opaque(CodeRebinding, w.pos, w.text, "this shell option changes what the command line means")
		}
	}
}

func (a *analyzer) testBuiltin(first word, words []word) {
	for i, w := range words {
		if (w.text == "-v" || w.text == "-R") && i+1 < len(words) && !identifier(words[i+1].text) {
			a.opaque(CodeComputed, first.pos, words[i+1].text, "the shell evaluates the subscript, which may run commands")
		}
	}
}
