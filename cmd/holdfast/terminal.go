package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast"
)

type terminalCmd struct {
	ID string `arg:"" help:"The session, or the beginning of its id."`
}

// Help is shown below the one-line description.
func (*terminalCmd) Help() string {
	return "Ends with the shell's exit code. What programs in the box print reaches your terminal as it is."
}

// Run connects this terminal with one in the box.
func (t *terminalCmd) Run(e *env) error {
	if e.json {
		return holdfast.Errorf(holdfast.KindInvalid, "terminal", "a terminal has no JSON form").
			WithHint("holdfast exec %s --json -- CMD…", t.ID)
	}
	c, id, err := e.onSession(t.ID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var size holdfast.TermSize
	resize := make(chan holdfast.TermSize, 1)
	if in, ok := e.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		old, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "terminal", "this terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(in.Fd()), old) }() // nothing else could be done
		size = sizeOf(in)
		changed := make(chan os.Signal, 1)
		signal.Notify(changed, syscall.SIGWINCH)
		defer signal.Stop(changed)
		go sendSizes(ctx, in, changed, resize)
	}
	code, err := c.Terminal(ctx, id, size, e.stdin, e.stdout, resize)
	if err != nil {
		return err
	}
	if code != 0 {
		return &exitError{code & 0xff}
	}
	return nil
}

// sendSizes tells each new size until ctx ends; only the newest one matters.
func sendSizes(ctx context.Context, in *os.File, changed <-chan os.Signal, resize chan<- holdfast.TermSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if size := sizeOf(in); size.Rows > 0 {
			select {
			case resize <- size:
			case <-ctx.Done():
				return
			}
		}
	}
}

func sizeOf(f *os.File) holdfast.TermSize {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || rows < 1 || cols < 1 || rows > 1000 || cols > 1000 {
		return holdfast.TermSize{}
	}
	return holdfast.TermSize{Rows: uint16(rows), Cols: uint16(cols)}
}
