package mem

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// command is a command that the interpreter runs. Its handler context has the variables, the
// directory and the streams.
type command struct {
	interp.HandlerContext
	ctx context.Context
	s   *shell
	p   *proc
}

// run runs a program, a builtin, or a file with a script, in this process.
func (c *command) run(argv []string) error {
	name := filepath.Base(argv[0])
	if prog := programs(name); prog != nil {
		defer c.p.rename(c.p.rename(name))
		return exitStatus(prog(c, argv))
	}
	if builtins[name] {
		return c.Builtin(c.ctx, append([]string{name}, argv[1:]...))
	}
	if strings.Contains(argv[0], "/") {
		if text, err := os.ReadFile(c.path(argv[0])); err == nil {
			return exitStatus(c.script(string(text), argv, false))
		}
	}
	return exitStatus(c.complain(statusNotFound, "sh: %s: not found", argv[0]))
}

// exitStatus returns an exit status as the interpreter wants it.
func exitStatus(code int) error {
	if code == 0 {
		return nil
	}
	return interp.ExitStatus(code)
}

// script runs a script as another shell in this process would.
func (c *command) script(text string, argv []string, errexit bool) int {
	in, _ := c.Stdin.(*os.File)
	return c.p.runScript(c.ctx, setup{inherited(c.Env, false), c.Dir, in, c.Stdout, c.Stderr}, text, argv, errexit)
}

// spawn runs a background statement of the script as a process of its own, in the same process
// group, without stdin.
func (c *command) spawn(args []string) error {
	at, err := strconv.Atoi(args[0])
	if err != nil || at < 0 || at >= len(c.s.later) {
		return exitStatus(statusNotFound)
	}
	files, err := dupAll([3]*os.File{nil, fileOf(c.Stdout), fileOf(c.Stderr)})
	if err != nil {
		return exitStatus(c.complain(1, "sh: %v", err))
	}
	on := setup{env: inherited(c.Env, true), dir: c.Dir, in: files[0]}
	p, err := c.p.m.run(c.p, c.p.mark, files, c.p.name, func(p *proc) int {
		on.out, on.err = p.stream(files[1]), p.stream(files[2])
		s := &shell{p: p, later: c.s.later}
		return s.run(p.ctx, on, &syntax.File{Name: "sh", Stmts: []*syntax.Stmt{c.s.later[at]}}, args[1:], false)
	})
	if err != nil {
		return exitStatus(c.complain(1, "sh: %v", err))
	}
	c.p.m.mu.Lock()
	c.s.jobs = append(c.s.jobs, p)
	c.p.m.mu.Unlock()
	return c.Builtin(c.ctx, []string{"eval", jobVar + "=" + strconv.Itoa(p.pid)})
}

// path returns the host's path of a file that a program names.
func (c *command) path(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(c.Dir, name)
	}
	return c.p.m.real(name)
}

// say writes to stdout and returns the exit status: 1 if the write failed.
func (c *command) say(format string, args ...any) int {
	if _, err := fmt.Fprintf(c.Stdout, format, args...); err != nil {
		return 1
	}
	return 0
}

// complain writes a message to stderr and returns status.
func (c *command) complain(status int, format string, args ...any) int {
	// If stderr cannot be written, the message is lost.
	_, _ = fmt.Fprintf(c.Stderr, format+"\n", args...)
	return status
}
