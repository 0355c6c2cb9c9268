package check

import (
	"regexp"
	"strings"
)

// role says what a command has to be asked besides its name.
type role uint8

const (
	roleShell role = iota + 1
	roleSource
	roleEval
	roleTrap
	roleFind
	roleAlias
	roleMove
	roleSed
	roleAwk
	roleOptions
	roleInterpret
	roleGit
	roleCarry
	roleUnread
	roleNames
	roleDeclare
	rolePrintf
	roleTest
	roleLet
)

// roles are the commands that need more than a look at their name.
var roles = newRoles()

// play asks.
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
	case roleFind:
		a.find(first, words, in)
	case roleAlias:
		a.alias(words)
	case roleMove:
		a.move(first, words)
	case roleSed:
		a.sed(words)
	case roleAwk:
		a.awk(first, words)
	case roleOptions:
		a.setOption(words)
	case roleInterpret:
		a.interpret(first, words)
	case roleGit:
		a.git(words)
	case roleCarry:
		a.carry(first, words)
	case roleUnread:
		a.opaque(CodeLauncher, first.pos, first.text, baseName(first.text)+" runs other programs in ways that this checker does not follow")
	case roleNames:
		a.named(words, first.pos)
		a.carry(first, words)
	case roleDeclare:
		a.declared(words, first.pos)
	case rolePrintf:
		for i, w := range words {
			if strings.HasPrefix(w.text, "-v") {
				a.named(words[i:min(i+2, len(words))], first.pos)
			}
		}
	case roleTest:
		a.testBuiltin(first, words)
	case roleLet:
		for _, w := range words {
			if w.kind != literal || strings.ContainsAny(w.text, "$`[") {
				a.opaque(CodeComputed, first.pos, w.text, "arithmetic over text")
			}
		}
	}
}

// interpreter describes how a program of another language takes its text: by these
// short and long options, or by standard input.
type interpreter struct {
	short string
	long  []string
	// quiet are options with which it only says something.
	quiet []string
	// always: its input is commands, whatever its arguments are.
	always bool
}

var interpreters = map[string]interpreter{
	"python": {short: "c", quiet: []string{"-V", "--version", "-h", "--help"}},
	"perl":   {short: "eE", quiet: []string{"-v", "-V", "--version", "-h"}},
	"ruby":   {short: "e", quiet: []string{"-v", "--version", "-h"}},
	"node":   {short: "ep", long: []string{"--eval", "--print", "--require", "--import"}, quiet: []string{"-v", "--version", "-h", "--help"}},
	"deno":   {short: "", long: []string{"eval", "repl"}, quiet: []string{"-V", "--version", "--help"}},
	"bun":    {short: "e", long: []string{"--eval", "--print", "repl"}, quiet: []string{"-v", "--version"}},
	"php":    {short: "rBRE", quiet: []string{"-v", "--version"}},
	"lua":    {short: "el", quiet: []string{"-v"}},
	"tclsh":  {}, "expect": {short: "c"}, "osascript": {short: "e"}, "Rscript": {short: "e"}, "julia": {short: "eE", long: []string{"--eval", "--print"}},
	"guile": {short: "ce"}, "ed": {always: true}, "ex": {always: true}, "vim": {short: "cS", long: []string{"--cmd"}}, "vi": {short: "cS"}, "nvim": {short: "cS", long: []string{"--cmd"}}, "emacs": {long: []string{"--eval", "--execute", "--batch"}},
	"sqlite3": {always: true}, "bc": {}, "dc": {always: true},
}

// languageOf is the family of an interpreter's name: python3.11 is python.
func languageOf(name string) (interpreter, bool) {
	i, ok := interpreters[name]
	if !ok {
		i, ok = interpreters[strings.TrimRight(name, "0123456789.")]
	}
	if !ok && (name == "pypy" || name == "pypy3" || name == "ipython") {
		return interpreters["python"], true
	}
	if !ok && (name == "nodejs" || name == "luajit") {
		return interpreters["node"], true
	}
	return i, ok
}

// interpret refuses code in another language than the shell's; a file on disk is
// the box's business.
func (a *analyzer) interpret(first word, words []word) {
	name := baseName(first.text)
	lang, _ := languageOf(name)
	inline := func(w word) {
		a.out.Opaque = append(a.out.Opaque, Opaque{
			Code: CodeProgram, Pos: w.pos, Subject: w.text, interpreter: name,
			Reason: "code for " + name + " that this checker does not read",
		})
	}
	for _, w := range words {
		for _, q := range lang.quiet {
			if w.text == q && len(words) == 1 {
				return
			}
		}
		for _, l := range lang.long {
			if w.text == l || strings.HasPrefix(w.text, l+"=") {
				inline(w)
				return
			}
		}
		switch {
		case w.kind == computed || w.kind == stream:
			inline(w)
			return
		case w.text == "-" || strings.HasPrefix(w.text, "/dev/") || strings.HasPrefix(w.text, "/proc/"):
			inline(w)
			return
		case strings.HasPrefix(w.text, "--"):
		case strings.HasPrefix(w.text, "-"):
			if strings.ContainsAny(w.text[1:], lang.short) {
				inline(w)
				return
			}
		case !lang.always:
			return // a file, and what follows is the program's own
		}
	}
	inline(first)
}

var runsInAwk = regexp.MustCompile(`system|\||getline|@load|@include|close|ENVIRON`)

// awk refuses programs that could run others.
func (a *analyzer) awk(first word, words []word) {
	for i, w := range words {
		if w.kind == computed || w.kind == stream || w.kind == literal && runsInAwk.MatchString(w.text) ||
			strings.HasPrefix(w.text, "-e") || strings.HasPrefix(w.text, "-l") || strings.HasPrefix(w.text, "-E") || w.text == "-f" && i+1 < len(words) && strings.HasPrefix(words[i+1].text, "/dev/") {
			a.out.Opaque = append(a.out.Opaque, Opaque{
				Code: CodeProgram, Pos: w.pos, Subject: w.text, interpreter: baseName(first.text), Reason: "an awk program that may run others",
			})
			return
		}
	}
}

// runsInSed finds sed's e command, and the flag of that name behind a substitution.
var runsInSed = regexp.MustCompile(`(^|[;{}\n0-9$/!])\s*e(\s|$|;)|[/|#,:!@_]([gpIiMm0-9])*e([gpIiMmw0-9])*\s*($|[;}\n])`)

func (a *analyzer) sed(words []word) {
	script := true
	for i := 0; i < len(words); i++ {
		w := words[i]
		expression := false
		switch {
		case w.text == "-e" || w.text == "--expression":
			i++
			if i >= len(words) {
				return
			}
			w, expression, script = words[i], true, false
		case strings.HasPrefix(w.text, "-e"), strings.HasPrefix(w.text, "--expression="):
			expression, script = true, false
		case w.text == "-f", strings.HasPrefix(w.text, "-f"), strings.HasPrefix(w.text, "--file"):
			script = false
			continue
		case strings.HasPrefix(w.text, "-"):
			continue
		case script:
			expression, script = true, false
		}
		if expression && (w.kind == computed || runsInSed.MatchString(w.text)) {
			a.out.Opaque = append(a.out.Opaque, Opaque{
				Code: CodeProgram, Pos: w.pos, Subject: w.text, interpreter: "sed", Reason: "a sed program that may run others",
			})
			return
		}
	}
}

// carriers are options with which a program runs another one.
var carriers = map[string][]string{
	"tar":   {"--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command", "--rmt-command", "--info-script", "--new-volume-script", "-F"},
	"rsync": {"-e", "--rsh", "--rsync-path"},
	"zip":   {"-TT", "--unzip-command"},
	"man":   {"-P", "--pager", "-H", "--html"},
	"sort":  {"--compress-program"},
	"split": {"--filter"},
	"make":  {"--eval", "-E"}, "gmake": {"--eval", "-E"},
	"go": {"-exec", "-toolexec", "-vettool"}, "cargo": {"--config"}, "npx": {"-c", "--call"},
	"less": {"--lesskey-src", "--lesskey-file"}, "rg": {"--pre", "--hostname-bin"},
	"fd": {"-x", "-X", "--exec", "--exec-batch"}, "fdfind": {"-x", "-X", "--exec", "--exec-batch"},
	"curl": {"-K", "--config"}, "wget": {"--use-askpass", "--config", "--execute", "-e"}, "tcpdump": {"-z"},
	"install": {"--strip-program"}, "mapfile": {"-C"}, "readarray": {"-C"}, "compgen": {"-C", "-F"}, "jobs": {"-x"},
	"enable": {"-f", "-n", "-d", "-a"}, "hash": {"-p"},
}

// standAlone are programs whose short options are no letters of a cluster.
var standAlone = map[string]bool{"go": true, "npx": true, "zip": true}

// carry refuses the options with which a program runs another one. The short ones
// may stand in a cluster or have their value attached.
func (a *analyzer) carry(first word, words []word) {
	name := baseName(first.text)
	for _, w := range words {
		for _, o := range carriers[name] {
			clustered := len(o) == 2 && !standAlone[name] && len(w.text) > 2 && w.text[0] == '-' && w.text[1] != '-' && strings.Contains(w.text, o[1:])
			if w.text == o || strings.HasPrefix(w.text, o+"=") || clustered {
				a.opaque(CodeLauncher, w.pos, w.text, "an option with which "+name+" runs something else")
				return
			}
		}
	}
}

// git refuses what makes git run something else: settings on the line, and the
// options and commands that name a program.
func (a *analyzer) git(words []word) {
	command := ""
	for i := 0; i < len(words); i++ {
		t := words[i].text
		option := strings.HasPrefix(t, "-")
		name, _, _ := strings.Cut(t, "=")
		switch {
		case command == "" && (t == "-C" || t == "--git-dir" || t == "--work-tree" || t == "--namespace"):
			i++
			continue
		case command == "" && !option:
			if words[i].kind != literal {
				a.opaque(CodeComputed, words[i].pos, t, "the name of a command has to be written out")
				return
			}
			command = t
			continue
		}
		if command == "" && (t == "-c" || name == "--config-env" || name == "--exec-path" && strings.Contains(t, "=")) ||
			name == "--upload-pack" || name == "--receive-pack" || name == "--exec" || name == "--ext-diff" || name == "--open-files-in-pager" || name == "--extcmd" ||
			t == "-x" && (command == "rebase" || command == "difftool") || strings.HasPrefix(t, "-O") && command == "grep" ||
			t == "-u" && (command == "clone" || command == "fetch" || command == "ls-remote") ||
			command == "bisect" && t == "run" || command == "submodule" && t == "foreach" || command == "config" && !option ||
			strings.HasPrefix(t, "ext::") {
			a.opaque(CodeLauncher, words[i].pos, t, "a use of git with which it runs something else")
			return
		}
	}
	if command == "filter-branch" || command == "shell" || command == "daemon" || command == "instaweb" {
		a.opaque(CodeLauncher, words[0].pos, command, "git "+command+" runs other programs")
	}
}

// unread are programs that run others in ways this checker does not follow.
var unread = []string{
	"su", "runuser", "pkexec", "chroot", "unshare", "nsenter", "setpriv", "bwrap", "firejail", "systemd-run", "systemd-nspawn", "strace", "ltrace", "gdb", "script",
	"watch", "parallel", "flock", "at", "batch", "crontab", "taskset", "chrt", "numactl", "prlimit", "softlimit", "daemonize", "start-stop-daemon", "screen", "tmux",
	"ssh", "rsh", "mosh", "scp", "sftp", "entr", "inotifywait", "socat", "nc", "ncat", "netcat", "cpulimit", "catchsegv", "valgrind", "perf", "ld.so", "ld-linux-x86-64.so.2", "ld-linux.so.2",
	"dbus-run-session", "dbus-launch", "xvfb-run", "fakeroot", "proot", "sg", "newgrp", "login", "capsh", "eatmydata", "setarch", "linux64", "linux32", "i386", "x86_64", "uname26", "unbuffer",
	"pwsh", "powershell", "csh", "tcsh", "nu", "elvish", "xonsh", "rc", "es", "yash", "posh", "bind", "complete", "fc", "run-parts",
}

func (a *analyzer) alias(words []word) {
	for _, w := range words {
		if w.kind != literal || strings.Contains(w.text, "=") {
			a.opaque(CodeRebinding, w.pos, w.text, "a name that is made to mean something else")
			return
		}
	}
}

func (a *analyzer) setOption(words []word) {
	for _, w := range words {
		if w.kind == literal && (w.text == "expand_aliases" || w.text == "extdebug" || w.text == "lastpipe" || w.text == "posix") {
			a.opaque(CodeRebinding, w.pos, w.text, "an option that changes what the line means")
		}
	}
}

func newRoles() map[string]role {
	out := map[string]role{
		"eval": roleEval, "source": roleSource, ".": roleSource, "trap": roleTrap, "find": roleFind, "alias": roleAlias,
		"cd": roleMove, "pushd": roleMove, "popd": roleMove, "sed": roleSed, "gsed": roleSed, "shopt": roleOptions, "set": roleOptions,
		"git": roleGit, "printf": rolePrintf, "test": roleTest, "[": roleTest, "let": roleLet,
	}
	give := func(r role, names ...string) {
		for _, n := range names {
			out[n] = r
		}
	}
	give(roleUnread, unread...)
	for name := range interpreters {
		out[name] = roleInterpret
	}
	give(roleInterpret, "python2", "python3", "pypy", "pypy3", "ipython", "nodejs", "luajit", "perl5")
	for name := range carriers {
		out[name] = roleCarry
	}
	for name := range dialects {
		out[name] = roleShell
	}
	give(roleAwk, "awk", "gawk", "mawk", "nawk", "original-awk")
	give(roleNames, "read", "getopts", "unset", "wait", "readarray", "mapfile")
	give(roleDeclare, "declare", "typeset", "local", "export", "readonly")
	return out
}

func (a *analyzer) testBuiltin(first word, words []word) {
	for i, w := range words {
		if (w.text == "-v" || w.text == "-R") && i+1 < len(words) && !identifier(words[i+1].text) {
			a.opaque(CodeComputed, first.pos, words[i+1].text, "a subscript is evaluated")
		}
	}
}
