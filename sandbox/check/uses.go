package check

import (
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast/sandbox/check/usage"
)

// file is the name of a file that a command opens, according to its program's table.
type file struct {
	word
	op Op
	// sure is true if the word certainly names a file.
	sure bool
	// deep is true if the command works on everything below the file. names is true if the file contains names of
	// other files that the command opens.
	deep, names bool
}

// tableOf returns the table of a program by its name, with or without a version.
func tableOf(name string) *usage.Program {
	if p := usage.Of(name); p != nil {
		return p
	}
	if strings.HasPrefix(name, "ld-") && strings.Contains(name, ".so") {
		return usage.Of("ld.so")
	}
	return usage.Of(withoutVersion(name))
}

// withoutVersion turns python3.11 into python and gcc-12 into gcc.
func withoutVersion(name string) string {
	return strings.TrimRight(strings.TrimRight(name, "0123456789."), "-")
}

// reading is the state of analyzing one command with its program's table.
type reading struct {
	a     *analyzer
	name  string
	first word
	words []word
	line  *usage.Line
	// cmd is the index of the command in Analysis.Commands.
	cmd int
	in  input
	// places are the directories that the command's file names may be relative to; empty if they are not known.
	places []string
	// sed and awk are the words that hold the parts of a sed or an awk program.
	sed, awk []word
}

// used analyzes the words of a command with its program's table p.
func (a *analyzer) used(p *usage.Program, first word, words []word, in input) {
	r := &reading{a: a, name: baseName(first.text), first: first, words: words, cmd: len(a.out.Commands) - 1, in: in, places: a.cwds}
	r.line = p.Read(tableWords(words))
	if p.Unread || r.line.Unread {
		a.opaque(CodeLauncher, first.pos, first.text, r.name+" runs other programs in a way that this checker does not follow")
		return
	}
	if r.line.Quiet && len(words) == 1 || r.line.Lookup {
		return
	}
	cmd := &a.out.Commands[r.cmd]
	cmd.tabled = true
	if r.line.Sub > 0 {
		cmd.Bare = cmd.Args[r.line.Sub:]
	}
	if i := r.line.Unknown; i >= 0 {
		if r.line.Strict {
			a.opaque(CodeLauncher, words[i].pos, words[i].text, r.name+" has an option that this checker does not know")
			return
		}
		a.unsure(words[i].pos, words[i].text, r.name+" has an option that this checker does not know")
	}
	if p.Always || r.line.Stdin {
		r.code(first)
	}
	before := a.lent
	a.lent = a.lent || p.Runner
	for _, u := range r.line.Uses {
		r.use(u)
	}
	r.scripts()
	r.special()
	r.links()
	a.out.Commands[r.cmd].cwds = r.places
	r.runs()
	a.lent = before
}

// unsure records a part that does not cause a denial but prevents an automatic allowance.
func (a *analyzer) unsure(pos int, subject, reason string) {
	a.out.Unsure = append(a.out.Unsure, Opaque{Code: CodeUnsure, Pos: pos, Subject: subject, Reason: reason})
}

func tableWords(words []word) []usage.Word {
	out := make([]usage.Word, len(words))
	for i, w := range words {
		out[i] = usage.Word{Text: w.text, Computed: w.kind == computed}
		out[i].Vague = w.kind == computed && (w.split || strings.HasPrefix(w.text, "$")) ||
			w.kind == pattern && w.marks[0] != plainMark
	}
	return out
}

// value returns the value of an option or operand: its word without the text before the value, as in --name=value.
func (r *reading) value(u usage.Use) word {
	if u.Word < 0 {
		return r.words[u.At]
	}
	w := r.words[u.Word]
	if u.From > 0 && u.From <= len(w.text) {
		w = w.part(u.From, len(w.text))
	}
	return w
}

// use records what one option or operand makes the program do.
func (r *reading) use(u usage.Use) {
	w := r.value(u)
	switch u.Kind {
	case usage.Text:
		if u.Maybe {
			r.file(u, w, Read, false)
		}
	case usage.Read, usage.Refer:
		r.file(u, w, Read, !u.Maybe)
	case usage.Write, usage.Target:
		r.file(u, w, Write, !u.Maybe)
	case usage.Dir:
		r.file(u, w, Read, !u.Maybe)
		r.enter(w)
	case usage.List:
		r.add(file{word: w, op: Read, names: true})
	case usage.At:
		r.at(w)
	case usage.Any:
		r.file(u, w, Read, false)
	default:
		r.program(u, w)
	}
}

// program records the effect of an option that runs or loads code, or sets a variable.
func (r *reading) program(u usage.Use, w word) {
	switch u.Kind {
	case usage.Load:
		r.load(u, w)
	case usage.Module:
		if w.kind != literal || riskyModule(w.text) {
			r.code(w)
		}
	case usage.Code:
		if !u.Maybe || u.Option != "" {
			r.code(w)
		}
	case usage.Sed, usage.Awk:
		if u.Maybe && w.kind != literal {
			return
		}
		if u.Kind == usage.Sed {
			r.sed = append(r.sed, w)
		} else {
			r.awk = append(r.awk, w)
		}
	case usage.Shell:
		if w.kind != literal || u.Word < 0 {
			r.a.hidden(w, "the program of a shell has to be written out literally")
			return
		}
		r.a.nested(w.text, w.pos, dialects["sh"]...)
	case usage.Expand:
		if w.kind == computed || strings.ContainsAny(w.text, "$`") {
			r.a.hidden(w, "the text is expanded once more, which may run commands")
		}
	case usage.Run:
		if u.Word >= 0 || u.Option != "--exec-path" {
			r.a.opaque(CodeLauncher, w.pos, r.words[u.At].text, "with this option "+r.name+" runs another program")
		}
	case usage.Ask:
		r.a.unsure(w.pos, r.words[u.At].text, "with this option "+r.name+" may use other settings")
	case usage.Var:
		r.a.named([]word{w}, r.first.pos)
	case usage.Assign:
		name, value, _ := strings.Cut(w.text, "=")
		r.a.setsText(name, value, w.pos)
	case usage.Setting:
		r.setting(w)
	}
}

// code records, as opaque, a program in a language that this checker does not read, or that it failed to read.
func (r *reading) code(w word) {
	r.a.out.Opaque = append(r.a.out.Opaque, Opaque{
		Code: CodeProgram, Pos: w.pos, Subject: w.text, interpreter: r.name,
		Reason: "this checker does not read code for " + r.name,
	})
}

// load records a file with code that the program runs. A file on disk is only checked as a
// file, because the box confines its code; a stream is recorded as code that was not read.
func (r *reading) load(u usage.Use, w word) {
	if u.Word < 0 {
		return
	}
	if w.kind == computed || w.kind == stream || r.a.streams(w) || strings.HasPrefix(w.text, "data:") {
		if !u.Maybe || u.Option != "" {
			r.code(w)
		}
		return
	}
	if u.Option != "" && (r.name == "sed" || r.name == "gsed" || strings.HasSuffix(r.name, "awk")) {
		r.a.unsure(w.pos, w.text, "the program in this file was not read by this checker")
	}
	r.file(u, w, Read, false)
}

// riskyModule reports whether a Python module (as in python -m) runs code from its arguments or its input, or whether its
// name has characters that a plain module name has not.
func riskyModule(name string) bool {
	switch name {
	case "timeit", "code", "pdb", "bdb", "asyncio", "idlelib", "runpy", "IPython", "pyrepl":
		return true
	}
	return !plainModule.MatchString(name)
}

var plainModule = regexp.MustCompile(`^-?[A-Za-z0-9_.:/-]+(=[A-Za-z0-9_,.:/-]*)?$`)

// setting records a variable that is set in the arguments of make, which expands its value.
func (r *reading) setting(w word) {
	name, value, ok := strings.Cut(w.text, "=")
	switch {
	case !ok || w.kind == computed && !strings.Contains(w.text, "="):
	case strings.HasSuffix(name, "!") || w.kind == literal && strings.Contains(value, "$") || name == "SHELL" || name == ".SHELLFLAGS" || name == "MAKEFLAGS":
		r.a.opaque(CodeLauncher, w.pos, w.text, "with this setting "+r.name+" may run another program")
	case loads(strings.TrimRight(name, ":+?"), value):
		r.a.unsure(w.pos, w.text, "this setting may name a program")
	}
}

// file records a word that may name a file; sure is true if it certainly does.
func (r *reading) file(u usage.Use, w word, o Op, sure bool) {
	if u.Word < 0 {
		return
	}
	r.add(file{word: w, op: o, sure: sure, deep: u.Option == "" && (r.line.Deep || r.name == "mv")})
}

func (r *reading) add(f file) {
	cmd := &r.a.out.Commands[r.cmd]
	cmd.files = append(cmd.files, f)
}

// at records the files that are named behind an @ or a <, as in -d @file and -F name=@file.
func (r *reading) at(w word) {
	for i, c := range w.text {
		if (c != '@' && c != '<') || i > 0 && !strings.ContainsAny(w.text[:i], "=") && i != strings.LastIndexByte(w.text, '@') {
			continue
		}
		name, _, _ := strings.Cut(w.text[i+1:], ";")
		f := w
		f.text, f.kind = name, w.kind
		r.add(file{word: f, op: Read, sure: i == 0 || w.text[i-1] == '='})
	}
	r.add(file{word: w, op: Read})
}

// enter follows an option that changes the program's directory, such as -C. Later file names may
// be relative to the old or to the new directory.
func (r *reading) enter(w word) {
	// Several such options add up: the directory of each is relative to that of the option before.
	before := r.a.cwds
	r.a.cwds = r.places
	to := r.a.destination([]word{{text: "--"}, w})
	r.a.cwds = before
	if to == nil {
		r.places = nil
		return
	}
	r.places = either(r.places, to)
}

// runs analyzes the commands in the words that the program (a launcher) would run.
func (r *reading) runs() {
	before := r.a.cwds
	r.a.cwds = r.places
	defer func() {
		// Only the launchers command and builtin run a cd in the shell itself, so that its directory changes.
		if r.name != "command" && r.name != "builtin" {
			r.a.cwds = before
		}
	}()
	if r.line.Command >= 0 {
		r.a.simple(r.replaced(), r.in)
	}
	for _, e := range r.line.Execs {
		cmd := append([]word(nil), r.words[e[0]:e[1]]...)
		for j := range cmd {
			if strings.Contains(cmd[j].text, "{}") {
				cmd[j].kind, cmd[j].split = computed, true
			}
		}
		if len(cmd) == 0 {
			r.a.hidden(r.first, "the command that "+r.name+" would run is missing")
			return
		}
		r.a.simple(cmd, r.in)
	}
}

// replaced returns the words of the command that a launcher runs. Words that xargs inserts
// or adds are marked as computed, because they are known only at run time.
func (r *reading) replaced() []word {
	cmd := append([]word(nil), r.words[r.line.Command:]...)
	if r.name != "xargs" {
		return cmd
	}
	mark := ""
	for _, u := range r.line.Uses {
		if u.Kind == usage.Replace {
			if mark = "{}"; u.Word >= 0 {
				mark = r.value(u).text
			}
		}
	}
	if mark == "" {
		return append(cmd, word{text: "what " + r.first.text + " reads", kind: computed, split: true, pos: r.first.pos})
	}
	for i := range cmd[1:] {
		if strings.Contains(cmd[i+1].text, mark) {
			cmd[i+1].kind, cmd[i+1].split = computed, true
		}
	}
	return cmd
}

// scripts analyzes the sed and awk programs among the words.
func (r *reading) scripts() {
	if len(r.sed) > 0 {
		var text []string
		for _, w := range r.sed {
			if w.kind == computed {
				r.code(w)
				return
			}
			text = append(text, w.text)
		}
		r.script(r.sed[0], usage.ReadSed(strings.Join(text, "\n")))
	}
	for _, w := range r.awk {
		if w.kind == computed {
			r.code(w)
			return
		}
		r.script(w, usage.ReadAwk(w.text))
	}
}

func (r *reading) script(w word, s usage.Script) {
	if s.Runs != "" || s.Unread != "" {
		r.code(w)
		return
	}
	for _, name := range s.Reads {
		r.add(file{word: word{text: name, pos: w.pos}, op: Read, sure: true})
	}
	for _, name := range s.Writes {
		r.add(file{word: word{text: name, pos: w.pos}, op: Write, sure: true})
	}
	if s.Opens != "" {
		r.add(file{word: word{text: s.Opens, kind: computed, pos: w.pos}, op: Read})
	}
}
