package main

import (
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// maxStdin is how much of stdin goes with a command.
const maxStdin = 10 << 20

type execCmd struct {
	ID      string            `arg:"" help:"${session}"`
	Cwd     string            `placeholder:"DIR" help:"Directory, relative to the workspace."`
	Env     map[string]string `placeholder:"K=V" mapsep:"none" help:"Environment; repeatable."`
	Timeout time.Duration     `placeholder:"TIME" help:"Kill it after that time; 2m when not given."`
	Stdin   bool              `short:"i" help:"Pass stdin on, up to 10 MiB."`
	Cmd     []string          `arg:"" passthrough:"" help:"The command and its arguments."`
}

// Help is shown below the one-line description.
func (*execCmd) Help() string {
	return `The box is started if needed. Output is passed on as it comes, and so is the exit code; a signal gives 128 and its number, a timeout 124.

Examples:
  holdfast exec 01a1 -- ls -la
  holdfast exec 01a1 --timeout 10m -- bash -c 'make test | tail'`
}

// Run runs a command and ends with its exit code.
func (x *execCmd) Run(e *env) error {
	argv := x.Cmd
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "exec", "no command is given").WithHint("holdfast exec %s -- CMD…", x.ID)
	}
	req := holdfast.ExecRequest{Argv: argv, Cwd: x.Cwd, Env: x.Env, TimeoutMS: x.Timeout.Milliseconds()}
	if x.Stdin {
		data, err := io.ReadAll(io.LimitReader(e.stdin, maxStdin+1))
		if err != nil {
			return holdfast.Errorf(holdfast.KindInvalid, "exec", "stdin: %w", err)
		}
		if len(data) > maxStdin {
			return holdfast.Errorf(holdfast.KindTooLarge, "exec", "stdin is over %d bytes", maxStdin).
				WithHint("put it in a file first: holdfast files put %s NAME", x.ID)
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
	if res.Message != "" {
		e.note("%s: %s", res.Class, res.Message)
	} else if res.Class != holdfast.ExitOK && res.Class != holdfast.ExitExit {
		e.note("ended by %s %s", res.Class, res.Signal)
	}
	return exitOf(res)
}

// exitOf is the exit code for a command's outcome, as a shell would give it.
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

// signals are the numbers that Linux gives to the names that a box reports.
func signals() map[string]int {
	return map[string]int{
		"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
		"SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
		"SIGXCPU": 24, "SIGXFSZ": 25, "SIGSYS": 31,
	}
}

// safeOutput strips what a box prints of terminal control where a terminal would
// obey it; elsewhere bytes pass as they are.
func safeOutput(w io.Writer) io.Writer {
	if isTerminal(w) {
		return &strippedWriter{w: w}
	}
	return w
}

// strippedWriter cleans text that comes in pieces, which may end within a
// character.
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
