package check

import (
	"path"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// input is what is known of the standard input that redirections give a command.
type input struct {
	// set is true if standard input is redirected. known is true if text is the whole standard input.
	set, known bool
	text       string
}

// input returns the standard input of a command; its last redirection counts.
func (a *analyzer) input(redirs []*syntax.Redirect) input {
	var in input
	for _, r := range redirs {
		if r.N != nil && r.N.Value != "0" {
			continue
		}
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			in = input{set: true}
			if !plainDelimiter(r.Word) {
				continue
			}
			if r.Hdoc == nil {
				in.known = true
				continue
			}
			in.text, in.known = a.heredoc(r)
		case syntax.WordHdoc:
			w := a.reduce(r.Word)
			in = input{set: true, text: w.text, known: w.kind != computed && w.kind != stream}
		case syntax.RdrIn, syntax.RdrInOut, syntax.DplIn:
			in = input{set: true}
		}
	}
	return in
}

// leadingTabs matches the tabs that the redirection <<- removes from each line.
var leadingTabs = regexp.MustCompile(`(?m)^\t+`)

// heredoc returns the text of a here-document; false if it is known only at run time.
func (a *analyzer) heredoc(r *syntax.Redirect) (string, bool) {
	quoted := false
	for _, p := range r.Word.Parts {
		l, plain := p.(*syntax.Lit)
		quoted = quoted || !plain || strings.Contains(l.Value, `\`)
	}
	var b strings.Builder
	for _, p := range r.Hdoc.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			s := p.Value
			if !quoted {
				s = unescapeQuoted(s)
			}
			b.WriteString(s)
		case *syntax.ParamExp:
			s, ok := a.known(p)
			if !ok {
				return "", false
			}
			b.WriteString(s)
		default:
			return "", false
		}
	}
	text := b.String()
	if r.Op == syntax.DashHdoc {
		text = leadingTabs.ReplaceAllString(text, "")
	}
	return text, true
}

// plainDelimiter reports whether every shell reads the word behind << as the same
// delimiter: letters, escaped letters, or a quoted text without escapes.
func plainDelimiter(w *syntax.Word) bool {
	if w == nil {
		return false
	}
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "$`\n") {
				return false
			}
		case *syntax.SglQuoted:
			if p.Dollar || strings.ContainsAny(p.Value, "\\\n") {
				return false
			}
		case *syntax.DblQuoted:
			if p.Dollar || len(p.Parts) > 1 {
				return false
			}
			for _, q := range p.Parts {
				l, ok := q.(*syntax.Lit)
				if !ok || strings.ContainsAny(l.Value, "\\$`\n") {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// hidden adds a program that the checker cannot read to the opaque parts, with the reason.
func (a *analyzer) hidden(w word, reason string) { a.opaque(CodeProgram, w.pos, w.text, reason) }

// dialects lists, for each shell, the grammars in which a program for it is parsed. The
// program has to be harmless in all of them.
var dialects = map[string][]syntax.LangVariant{
	"bash": {syntax.LangBash}, "rbash": {syntax.LangBash},
	"sh": {syntax.LangPOSIX, syntax.LangBash}, "dash": {syntax.LangPOSIX, syntax.LangBash}, "ash": {syntax.LangPOSIX, syntax.LangBash},
	"ksh": {syntax.LangMirBSDKorn, syntax.LangBash}, "mksh": {syntax.LangMirBSDKorn, syntax.LangBash},
	"pdksh": {syntax.LangMirBSDKorn, syntax.LangBash}, "oksh": {syntax.LangMirBSDKorn, syntax.LangBash}, "lksh": {syntax.LangMirBSDKorn, syntax.LangBash},
	"zsh": {syntax.LangBash}, "fish": {syntax.LangBash},
}

// plainProgram matches programs that zsh and fish read in the same way as bash.
var plainProgram = regexp.MustCompile(`^[A-Za-z0-9_./:,@%+\-\s'";&|]*$`)

// shellName returns a shell's name without a version.
func shellName(first word) string {
	name := baseName(first.text)
	if dialects[name] == nil {
		name = withoutVersion(name)
	}
	return name
}

// shell analyzes the program that a shell command would run.
func (a *analyzer) shell(first word, words []word, in input) {
	run := func(text string, at word) {
		name := shellName(first)
		if (name == "zsh" || name == "fish") && !plainProgram.MatchString(text) {
			a.hidden(at, "the program is in the language of "+name+", which this checker does not read")
			return
		}
		a.nested(text, at.pos, dialects[name]...)
	}
	program, stdin, rest, ok := a.shellOptions(first, words)
	switch {
	case !ok:
	case program && len(rest) == 0:
		a.hidden(first, "the shell's option -c has no program behind it")
	case program && rest[0].kind != literal:
		a.hidden(rest[0], "the program of a shell has to be written out literally")
	case program:
		run(rest[0].text, rest[0])
	case !stdin && len(rest) > 0:
		a.scriptFile(rest[0])
	case in.set && in.known:
		run(in.text, first)
	default:
		a.hidden(first, "the shell reads its program from its standard input, which is not known")
	}
}

// shellOptions reads a shell's options. program is true for -c, stdin for -s; rest are the
// operands. ok is false if the shell runs nothing (--version), or was recorded as opaque.
func (a *analyzer) shellOptions(first word, words []word) (program, stdin bool, rest []word, ok bool) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w.kind != literal {
			if w.kind == computed && !program {
				a.hidden(w, "an argument of the shell is known only at run time")
				return false, false, nil, false
			}
			return program, stdin, words[i:], true
		}
		switch {
		case w.text == "--" || w.text == "-":
			return program, stdin, words[i+1:], true
		case w.text == "--version" || w.text == "--help":
			return false, false, nil, false
		case w.text == "--login" || w.text == "--norc" || w.text == "--noprofile" || w.text == "--posix" || w.text == "--restricted" || w.text == "--verbose":
		case len(w.text) > 1 && (w.text[0] == '-' || w.text[0] == '+') && w.text[1] != '-':
			for _, c := range w.text[1:] {
				switch {
				case c == 'c':
					program = true
				case c == 's':
					stdin = true
				case c == 'o' || c == 'O':
					i++
				case !strings.ContainsRune("abefhilmnprtuvxBCEHPTk", c):
					a.opaque(CodeLauncher, w.pos, w.text, first.text+" has an option that this checker does not know")
					return false, false, nil, false
				}
			}
		case strings.HasPrefix(w.text, "-"):
			a.opaque(CodeLauncher, w.pos, w.text, first.text+" has an option that this checker does not know")
			return false, false, nil, false
		default:
			return program, stdin, words[i:], true
		}
	}
	return program, stdin, nil, true
}

// scriptFile checks the name of a script that a shell runs. A script on disk is confined by
// the box; a stream, such as /dev/stdin, is text that this checker has not read.
func (a *analyzer) scriptFile(w word) {
	if w.kind != literal && w.kind != pattern || a.streams(w) {
		a.hidden(w, "the script that the shell runs is known only at run time")
	}
}

// streams reports whether a file name may mean a stream: it lies below /dev or /proc from
// any possible working directory. If none is known, names like stdin or numbers count too.
func (a *analyzer) streams(w word) bool {
	if w.text == "-" {
		return true
	}
	cwds := a.cwds
	switch {
	case strings.HasPrefix(w.text, "/"):
		cwds = []string{"/"}
	case len(cwds) == 0:
		base := path.Base(w.text)
		return base == "stdin" || base == "tty" || strings.Trim(base, "0123456789") == ""
	}
	for _, d := range cwds {
		p := path.Clean(join(d, w.text))
		if within(p, "/dev") || within(p, "/proc") {
			return true
		}
		// A pattern may match a name below /dev or /proc.
		if w.kind == pattern && strings.HasPrefix(w.text, "/") && (reaches(w.glob(), "/dev") || reaches(w.glob(), "/proc")) {
			return true
		}
	}
	return false
}

func (a *analyzer) source(first word, words []word) {
	if len(words) > 0 && words[0].text == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		a.hidden(first, "the command source has no file name")
		return
	}
	a.scriptFile(words[0])
}

// evaluate analyzes the program that eval makes of its words.
func (a *analyzer) evaluate(first word, words []word) {
	var texts []string
	for _, w := range words {
		if w.kind != literal {
			a.hidden(w, "the program for eval has to be written out literally")
			return
		}
		texts = append(texts, w.text)
	}
	if len(texts) > 0 && texts[0] == "--" {
		texts = texts[1:]
	}
	a.nestedHere(strings.Join(texts, " "), first.pos)
}

// nestedHere analyzes a program that runs in the current shell, as with eval. It reports whether
// that program may change the shell's working directory.
func (a *analyzer) nestedHere(text string, pos int) bool {
	a.nested(text, pos, syntax.LangBash)
	moves := a.wandering || strings.Contains(text, "cd") || strings.Contains(text, "push") || strings.Contains(text, "pop") || strings.ContainsAny(text, `\'"`)
	if moves {
		a.cwds = nil
	}
	return moves
}

func (a *analyzer) trap(first word, words []word) {
	if len(words) > 0 && words[0].text == "--" {
		words = words[1:]
	}
	if len(words) < 2 || words[0].text == "-l" || words[0].text == "-p" || words[0].text == "-" || words[0].text == "" {
		return
	}
	if words[0].kind != literal {
		a.hidden(words[0], "the program for trap has to be written out literally")
		return
	}
	if a.nestedHere(words[0].text, first.pos) {
		a.adrift = true
	}
}
