package mem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

const (
	statusUsage    = 2
	statusNotFound = 127
	statusSignal   = 128
)

// errDead is the error of every step that an imitated process tries after it was killed.
var errDead = errors.New("the imitated process of the test driver mem was killed")

// shell is one script that a process runs. The interpreter has neither process ids nor signals, so the shell provides
// them: each background statement becomes a process of the machine, and $$ and $! become variables with the pid of the
// script's process and of its last background process.
type shell struct {
	p *proc
	// later holds the statements of the script that run in the background (cmd &).
	later []*syntax.Stmt

	// jobs are the background processes, guarded by machine.mu.
	jobs []*proc
}

const (
	// spawn is the name of the program by which a background statement is replaced. Its arguments
	// are the index of the statement and the arguments of the script.
	spawn = "/spawn"
	// pidVar and jobVar are the variables that stand for $$ and $!.
	pidVar = "_PID"
	jobVar = "_JOB"
	// maxScript is the most bytes of a script. The parser recurses, and a Go stack that overflows ends
	// the process.
	maxScript = 256 << 10
)

// builtins are the commands that the interpreter runs itself. The interpreter has more builtins,
// but they would reach the host, as type does, or need what only the machine has, as kill and
// wait do.
var builtins = map[string]bool{
	":": true, "true": true, "false": true, "exit": true, "set": true, "shift": true, "unset": true, "return": true,
	"break": true, "continue": true, "cd": true, "exec": true, "read": true, "test": true, "[": true, "printf": true, "echo": true, "pwd": true,
}

// resolve returns the name under which the interpreter runs a command. If the interpreter has a builtin of
// that name that is not in builtins, the name becomes a path, so that the imitated program runs instead.
func resolve(name string) string {
	base := filepath.Base(name)
	switch {
	case builtins[base]:
		return base
	case interp.IsBuiltin(name):
		return "/bin/" + name
	}
	return name
}

// setup is what a script gets when it starts: variables, directory and streams.
type setup struct {
	env      environ
	dir      string
	in       *os.File
	out, err io.Writer
}

// runScript parses and runs a script with arguments, of which the first is its name, and returns
// its exit status.
func (p *proc) runScript(ctx context.Context, on setup, text string, args []string, errexit bool) int {
	s := &shell{p: p}
	file, err := s.parse(text, args[0])
	if err != nil {
		fmt.Fprintf(on.err, "%s: syntax error: %v\n", args[0], err)
		return statusUsage
	}
	return s.run(ctx, on, file, args[1:], errexit)
}

// parse parses a script, and replaces the constructs that the interpreter cannot carry out: see replace.
func (s *shell) parse(text, name string) (*syntax.File, error) {
	if len(text) > maxScript {
		return nil, fmt.Errorf("the script has %d bytes, at most %d are allowed", len(text), maxScript)
	}
	// The variant has no process substitution, for which the interpreter makes files on the host.
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), name)
	if err != nil {
		return nil, err
	}
	syntax.Walk(file, s.replace)
	return file, nil
}

// replace replaces a background statement by a call of spawn, and $$ and $! by variables, in one node of the syntax
// tree. It always returns true, so that the walk visits the node's children too.
func (s *shell) replace(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.Stmt:
		if n.Background {
			later := *n
			later.Background = false
			syntax.Walk(&later, s.replace)
			words := append(quoted(spawn, strconv.Itoa(len(s.later))), allArgs())
			*n = syntax.Stmt{Position: n.Position, Cmd: &syntax.CallExpr{Args: words}}
			s.later = append(s.later, &later)
		}
	case *syntax.ParamExp:
		switch n.Param.Value {
		case "$":
			n.Param.Value = pidVar
		case "!":
			n.Param.Value = jobVar
		}
	}
	return true
}

// quoted returns the texts as quoted words of a script.
func quoted(texts ...string) (words []*syntax.Word) {
	for _, t := range texts {
		words = append(words, &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: t}}})
	}
	return words
}

// allArgs returns the word "$@".
func allArgs() *syntax.Word {
	args := &syntax.ParamExp{Short: true, Param: &syntax.Lit{Value: "@"}}
	return &syntax.Word{Parts: []syntax.WordPart{&syntax.DblQuoted{Parts: []syntax.WordPart{args}}}}
}

// run runs a script with its arguments, without its name, and returns its exit status.
func (s *shell) run(ctx context.Context, on setup, file *syntax.File, args []string, errexit bool) int {
	params := append([]string{"--"}, args...)
	if errexit {
		params = append([]string{"-e"}, params...)
	}
	r, err := interp.New(
		interp.Env(on.env), interp.Params(params...), interp.StdIO(on.in, on.out, on.err),
		// The option Dir of the interpreter would look for the directory on the host.
		func(r *interp.Runner) error { r.Dir = on.dir; return nil },
		interp.CallHandler(s.before),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
		interp.OpenHandler(s.open), interp.StatHandler(s.stat), interp.AccessHandler(s.access), interp.ReadDirHandler2(s.readDir),
	)
	if err != nil {
		fmt.Fprintf(on.err, "%s: %v\n", file.Name, err)
		return statusUsage
	}
	on.env[pidVar] = value(strconv.Itoa(s.p.pid))
	// Reset opens certain files in TMPDIR, on the host: give it a TMPDIR that does not exist.
	tmp := on.env["TMPDIR"]
	on.env["TMPDIR"] = value("/nonexistent")
	r.Reset()
	on.env["TMPDIR"] = tmp
	err = r.Run(ctx, file)
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	return 1
}

// before is called before each command. It counts as a step, so that a frozen process waits here.
// It returns the command to run.
func (s *shell) before(_ context.Context, argv []string) ([]string, error) {
	if !s.p.step(func() {}) {
		return nil, errDead
	}
	if argv[0] == "setsid" && len(argv) > 1 { // drop setsid and run its arguments: a box has only one session
		argv = argv[1:]
	}
	return append([]string{resolve(argv[0])}, argv[1:]...), nil
}

// exec runs a command that is not a builtin. No process of the host is ever started.
func (s *shell) exec(ctx context.Context, argv []string) error {
	c := &command{HandlerContext: interp.HandlerCtx(ctx), ctx: ctx, s: s, p: s.p}
	if argv[0] == spawn && len(argv) > 1 {
		return c.spawn(argv[1:])
	}
	return c.run(argv)
}

func (s *shell) open(ctx context.Context, path string, flag int, perm os.FileMode) (io.ReadWriteCloser, error) {
	f, err := s.p.open(interp.HandlerCtx(ctx).Dir, path, flag, perm)
	if err != nil {
		return nil, err
	}
	if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return f, nil
	}
	return s.p.stream(f), nil
}

func (s *shell) stat(_ context.Context, path string, follow bool) (info fs.FileInfo, err error) {
	look := os.Lstat
	if follow {
		look = os.Stat
	}
	if !s.p.step(func() { info, err = look(s.p.m.real(path)) }) {
		return nil, errDead
	}
	return info, err
}

func (s *shell) access(ctx context.Context, path string, mode interp.AccessMode) error {
	info, err := s.stat(ctx, path, true)
	if err == nil && mode&interp.AccessExec != 0 && info.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return err
}

func (s *shell) readDir(_ context.Context, path string) (entries []fs.DirEntry, err error) {
	if !s.p.step(func() { entries, err = os.ReadDir(s.p.m.real(path)) }) {
		return nil, errDead
	}
	return entries, err
}

// stream is a file or pipe to which a process writes. Each write to a file is one step of the
// process; a write to a pipe, which may block, is between two steps.
type stream struct {
	p       *proc
	regular bool
	f       *os.File
}

// stream returns f as a stream of the process.
func (p *proc) stream(f *os.File) *stream {
	info, err := f.Stat()
	return &stream{p: p, regular: err == nil && info.Mode().IsRegular(), f: f}
}

// Write writes to the file, or waits while the process is frozen.
func (t *stream) Write(b []byte) (n int, err error) {
	if t.regular {
		if !t.p.step(func() { n, err = t.f.Write(b) }) {
			return 0, errDead
		}
		return n, err
	}
	if !t.p.step(func() {}) {
		return 0, errDead
	}
	n, err = t.f.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		t.p.m.mu.Lock()
		t.p.m.hit(t.p, int(syscall.SIGPIPE))
		t.p.m.mu.Unlock()
	}
	return n, err
}

// Read reads from the file.
func (t *stream) Read(b []byte) (int, error) { return t.f.Read(b) }

// Close closes the file.
func (t *stream) Close() error { return t.f.Close() }

// fileOf returns the file behind a writer of the interpreter, or nil if it writes into memory.
func fileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *stream:
		return w.f
	case *os.File:
		return w
	}
	return nil
}

// environ holds the variables of a script at its start. Get also answers for some variables that are not set (ids and
// home directories), which the interpreter would otherwise take from the host.
type environ map[string]expand.Variable

func value(s string) expand.Variable {
	return expand.Variable{Set: true, Kind: expand.String, Str: s}
}

// Get implements expand.Environ.
func (e environ) Get(name string) expand.Variable {
	if v, ok := e[name]; ok {
		return v
	}
	switch name {
	case "UID", "EUID", "GID":
		return value("1000")
	case "HOME":
		return value("/home/agent")
	}
	if user, ok := strings.CutPrefix(name, "HOME "); ok { // the interpreter asks for the home of another user
		return value("~" + user)
	}
	return expand.Variable{}
}

// Each implements expand.Environ.
func (e environ) Each(f func(name string, v expand.Variable) bool) {
	for name, v := range e {
		if !f(name, v) {
			return
		}
	}
}

// environment returns exported variables, each given as NAME=VALUE.
func environment(pairs []string) environ {
	e := environ{}
	for _, kv := range pairs {
		name, val, _ := strings.Cut(kv, "=")
		v := value(val)
		v.Exported = true
		e[name] = v
	}
	return e
}

// inherited returns the exported variables, which a started program gets; or all variables, if all is set.
func inherited(from expand.Environ, all bool) environ {
	e := environ{}
	from.Each(func(name string, v expand.Variable) bool {
		if v.IsSet() && (all || v.Exported) {
			e[name] = v
		} else {
			delete(e, name)
		}
		return true
	})
	return e
}
