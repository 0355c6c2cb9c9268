package main

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// maxStdin is the most bytes of stdin that are passed to a command.
const maxStdin = 10 << 20

type execCmd struct {
	ID      string            `arg:"" help:"${session}"`
	Cwd     string            `placeholder:"DIR" help:"Directory, relative to the workspace."`
	Env     map[string]string `placeholder:"K=V" mapsep:"none" help:"Environment; repeatable."`
	Timeout time.Duration     `placeholder:"TIME" help:"Kill it after that time; 2m when not given."`
	Stdin   bool              `short:"i" help:"Pass stdin on, up to 10 MiB; with -t as it is typed."`
	TTY     bool              `name:"tty" short:"t" help:"Give the command a terminal, like this one."`
	Cmd     []string          `arg:"" passthrough:"" help:"The command and its arguments."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*execCmd) Help() string {
	return `The box is started if needed. Output is passed on as it comes, and so is the exit code; a signal gives 128 and its number, a timeout 124. With -t the command has a terminal, and without --timeout no time limit; its output reaches your terminal unchanged. The command ends when the connection to the server ends.

Examples:
  holdfast exec 01a1 -- ls -la
  holdfast exec -it 01a1 -- bash
  holdfast exec 01a1 --timeout 10m -- bash -c 'make test | tail'`
}

// Run runs a command and ends with its exit code.
func (x *execCmd) Run(e *env) error {
	argv := x.Cmd
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 || argv[0] == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "exec", "no command is given").WithHint("holdfast exec %s -- CMD…", word(x.ID))
	}
	req := holdfast.ExecRequest{Argv: argv, Cwd: x.Cwd, Env: x.Env, TimeoutMS: x.Timeout.Milliseconds()}
	if x.TTY {
		return x.onTerminal(e, req)
	}
	if x.Stdin {
		data, err := io.ReadAll(io.LimitReader(e.stdin, maxStdin+1))
		if err != nil {
			return holdfast.Errorf(holdfast.KindInvalid, "exec", "stdin cannot be read: %w", err)
		}
		if len(data) > maxStdin {
			return holdfast.Errorf(holdfast.KindTooLarge, "exec", "the input on stdin is larger than %d bytes", maxStdin).
				WithHint("put the input into a file of the session first: holdfast files put %s NAME", word(x.ID))
		}
		req.Stdin = data
	}
	c, id, err := e.onSession(x.ID)
	if err != nil {
		return err
	}
	if e.json {
		res, err := c.Exec(e.ctx, id, req)
		if err != nil {
			return err
		}
		if err := e.print(res); err != nil {
			return err
		}
		return exitOf(res)
	}
	res, err := c.ExecStream(e.ctx, id, req, safeOutput(e.stdout), safeOutput(e.stderr))
	if err != nil {
		return err
	}
	return e.ended(res)
}

// ended prints why a command ended if its exit code does not tell, and returns its exit code.
func (e *env) ended(res holdfast.ExecResult) error {
	if res.Message != "" {
		e.note("%s: %s", res.Class, res.Message)
	} else if res.Class != holdfast.ExitOK && res.Class != holdfast.ExitExit {
		e.note("ended by %s %s", res.Class, res.Signal)
	}
	return exitOf(res)
}

// onTerminal runs the command on a terminal like this one. Without -i, what is typed does not
// reach the command, and Ctrl-C ends holdfast and with it the command in the box.
func (x *execCmd) onTerminal(e *env, req holdfast.ExecRequest) error {
	in, ok := terminalOf(e.stdin)
	switch {
	case e.json:
		return holdfast.Errorf(holdfast.KindInvalid, "exec", "--json does not work with -t: a terminal has no JSON form").
			WithHint("leave -t out: holdfast exec %s --json -- CMD…", word(x.ID))
	case !ok:
		return holdfast.Errorf(holdfast.KindInvalid, "exec", "-t gives the command a terminal like the one on stdin, but stdin is not a terminal").
			WithHint("leave -t out: holdfast exec -i %s -- CMD…", word(x.ID))
	}
	c, id, err := e.onSession(x.ID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var keys io.Reader = in
	restore := func() {}
	if x.Stdin {
		if restore, err = rawMode(in); err != nil {
			return err
		}
	} else {
		silent, end := io.Pipe()
		defer end.Close()
		keys = silent
	}
	res, err := c.Terminal(ctx, id, holdfast.TerminalRequest{Size: sizeOf(in), Exec: &req}, keys, e.stdout, sizesOf(ctx, in))
	restore()
	if err != nil {
		return goOn(err, "the command ended with the connection, its files are kept")
	}
	return e.ended(res)
}

// exitOf returns an error with the exit code that a shell would give for a command's outcome, or
// nil for success.
func exitOf(res holdfast.ExecResult) error {
	code := res.ExitCode
	switch res.Class {
	case holdfast.ExitOK:
		return nil
	case holdfast.ExitTimeout:
		code = 124
	case holdfast.ExitError:
		code = 127
	case holdfast.ExitSignal, holdfast.ExitOOM, holdfast.ExitPids, holdfast.ExitCanceled:
		if n, ok := signals()[res.Signal]; ok {
			code = 128 + n
		}
	}
	if code <= 0 || code > 255 {
		code = 1
	}
	return &exitError{code}
}

// signals returns the Linux numbers of the signal names that a box reports.
func signals() map[string]int {
	return map[string]int{
		"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
		"SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
		"SIGXCPU": 24, "SIGXFSZ": 25, "SIGSYS": 31,
	}
}

// safeOutput returns a writer for the output of a box: it removes terminal control sequences if
// w is a terminal, and is w itself otherwise.
func safeOutput(w io.Writer) io.Writer {
	if isTerminal(w) {
		return &strippedWriter{w: w}
	}
	return w
}

// strippedWriter removes terminal control sequences from text that comes in pieces; a piece may
// end within a character.
type strippedWriter struct {
	w     io.Writer
	strip plain.Stripper
	rest  []byte
}

func (s *strippedWriter) Write(p []byte) (int, error) {
	all := append(s.rest, p...)
	whole := plain.WholeRunes(all)
	s.rest = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(s.w, s.strip.Clean(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
