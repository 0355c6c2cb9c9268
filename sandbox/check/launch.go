package check

import (
	"path"
	"strings"
)

// launcher says how a program that runs another one takes its arguments.
type launcher struct {
	// flags are short options without a value, valued those with one; long are
	// `--name`, with a trailing `=` when they take a value.
	flags, valued string
	long          []string
	// lookup are flags with which nothing is run.
	lookup string
	// skip is how many operands come before the command, assigns allows NAME=VALUE
	// there, digits an option that is a number.
	skip    int
	assigns bool
	digits  bool
	// appends: the program adds words of its own to the command.
	appends bool
}

// launchers are those that can be unwrapped.
var launchers = map[string]*launcher{
	"env":     {flags: "i0v", valued: "uC", long: []string{"--ignore-environment", "--null", "--unset=", "--chdir="}, assigns: true},
	"command": {flags: "p", lookup: "vV"},
	"builtin": {},
	"exec":    {flags: "cl", valued: "a"},
	"nohup":   {},
	"setsid":  {flags: "cfw", long: []string{"--ctty", "--fork", "--wait"}},
	"nice":    {valued: "n", long: []string{"--adjustment="}, digits: true},
	"ionice":  {flags: "t", valued: "cn", long: []string{"--class=", "--classdata=", "--ignore"}},
	"time":    {flags: "pvaq", valued: "of", long: []string{"--portability", "--verbose", "--append", "--quiet", "--output=", "--format="}},
	"timeout": {flags: "v", valued: "ks", long: []string{"--foreground", "--preserve-status", "--verbose", "--kill-after=", "--signal="}, skip: 1},
	"stdbuf":  {valued: "ioe", long: []string{"--input=", "--output=", "--error="}},
	"chronic": {},
	"busybox": {},
	"toybox":  {},
	"sudo": {
		flags: "nEHkSbPA", valued: "ughpCrtTUDR",
		long:    []string{"--non-interactive", "--preserve-env", "--set-home", "--stdin", "--background", "--user=", "--group=", "--host=", "--prompt=", "--chdir="},
		assigns: true,
	},
	"doas":  {flags: "nL", valued: "uC"},
	"xargs": {flags: "0rtpxo", valued: "nLPIsdaE", long: []string{"--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--max-args=", "--max-procs=", "--max-lines=", "--max-chars=", "--replace=", "--delimiter=", "--arg-file="}, appends: true},
}

// launch unwraps a launcher.
func (a *analyzer) launch(l *launcher, first word, words []word, in input) {
	if len(words) == 1 && words[0].kind == literal && (words[0].text == "--version" || words[0].text == "--help") && baseName(first.text) != "exec" {
		return
	}
	rest, ok := a.unwrap(l, first, words)
	if !ok || len(rest) == 0 {
		return
	}
	if l.appends {
		rest = append(rest[:len(rest):len(rest)], word{text: "what " + first.text + " reads", kind: computed, pos: first.pos})
	}
	a.simple(rest, in)
}

// unwrap gives the command that a launcher would run. A use that is not known is
// recorded as opaque.
func (a *analyzer) unwrap(l *launcher, first word, words []word) ([]word, bool) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w.kind != literal {
			if strings.HasPrefix(w.text, "-") || l.assigns || w.kind == computed {
				a.opaque(CodeLauncher, w.pos, w.text, "what "+first.text+" would run is known only when it runs")
				return nil, false
			}
			return a.afterOperands(l, words[i:])
		}
		switch {
		case w.text == "--":
			return a.afterOperands(l, words[i+1:])
		case l.digits && len(w.text) > 1 && w.text[0] == '-' && number(w.text[1:]):
		case strings.HasPrefix(w.text, "-") && w.text != "-":
			takes, lookup, ok := l.option(w.text)
			if !ok {
				a.opaque(CodeLauncher, w.pos, w.text, "an option of "+first.text+" that this checker does not know")
				return nil, false
			}
			if lookup {
				return nil, false
			}
			if takes {
				i++
			}
		case l.assigns && strings.Contains(w.text, "=") && identifier(w.text[:strings.IndexByte(w.text, '=')]):
			a.setsText(w.text[:strings.IndexByte(w.text, '=')], w.pos)
		default:
			return a.afterOperands(l, words[i:])
		}
	}
	return nil, true
}

// afterOperands skips the operands that come first. Behind `--` env still takes
// assignments.
func (a *analyzer) afterOperands(l *launcher, words []word) ([]word, bool) {
	words = words[min(l.skip, len(words)):]
	for l.assigns && len(words) > 0 && words[0].kind == literal {
		name, _, ok := strings.Cut(words[0].text, "=")
		if !ok || !identifier(name) {
			break
		}
		a.setsText(name, words[0].pos)
		words = words[1:]
	}
	return words, true
}

// option reads one option: whether the next word is its value, whether it makes
// the launcher run nothing, and whether it is known at all.
func (l *launcher) option(o string) (takes, lookup, known bool) {
	if strings.HasPrefix(o, "--") {
		name, _, valued := strings.Cut(o, "=")
		for _, long := range l.long {
			switch {
			case long == name+"=":
				return !valued, false, true
			case long == name && !valued, long == name && name == "--preserve-env":
				return false, false, true
			}
		}
		return false, false, false
	}
	for i := 1; i < len(o); i++ {
		switch {
		case strings.IndexByte(l.lookup, o[i]) >= 0:
			return false, true, true
		case strings.IndexByte(l.valued, o[i]) >= 0:
			return i == len(o)-1, false, true
		case strings.IndexByte(l.flags, o[i]) < 0:
			return false, false, false
		}
	}
	return false, false, len(o) > 1
}

// destination is where cd would lead to from each of the directories; none: not
// known.
func (a *analyzer) destination(args []word) []string {
	to := word{text: a.homeDir}
	for i, w := range args {
		if w.kind == literal && (w.text == "-L" || w.text == "-P" || w.text == "-e" || w.text == "--") && i < len(args)-1 {
			continue
		}
		to = w
		break
	}
	if len(args) == 0 {
		home, ok := a.home()
		if !ok {
			return nil
		}
		to.text = home
	}
	if to.kind != literal || to.text == "" || strings.HasPrefix(to.text, "-") || strings.HasPrefix(to.text, "+") || a.assigned["CDPATH"] || a.functions["cd"] {
		return nil
	}
	if strings.HasPrefix(to.text, "/") {
		return []string{to.text}
	}
	var out []string
	for _, d := range a.cwds {
		// The physical directory is for the file system to say: `..` stays.
		out = append(out, join(d, to.text))
	}
	return out
}

// move follows cd; it may fail, so both places remain possible.
func (a *analyzer) move(first word, words []word) {
	to := a.destination(words)
	if baseName(first.text) != "cd" || to == nil {
		a.cwds = nil
		return
	}
	a.cwds = either(a.cwds, to)
	for i, d := range a.cwds {
		if !strings.Contains(d, "..") {
			a.cwds[i] = path.Clean(d)
		}
	}
}
