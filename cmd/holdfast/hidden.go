package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast"
)

// maxSecret is the most that is read of a secret, in bytes.
const maxSecret = 64 << 10

// readSecret reads a secret: from a file if one is named, else from the terminal without echo, after it printed a
// note, else from stdin. op names the command in errors.
func readSecret(e *env, op, file, note string) ([]byte, error) {
	in := e.stdin
	if file != "" {
		f, err := openLocal(op, file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	} else if f, ok := terminalOf(e.stdin); ok {
		e.note("%s", note)
		return readHidden(e, op, f)
	}
	value, err := io.ReadAll(io.LimitReader(in, maxSecret+1))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the secret cannot be read: %w", err)
	}
	return value, nil
}

// terminalOf returns an input as a file, and whether the input is a terminal.
func terminalOf(in io.Reader) (*os.File, bool) {
	f, ok := in.(*os.File)
	return f, ok && isTerminal(f)
}

// readHidden reads a line from a terminal without echo. It turns echo on again however reading
// ends, also after a signal.
func readHidden(e *env, op string, f *os.File) ([]byte, error) {
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, op, "the state of this terminal cannot be read: %w", err)
	}
	defer func() {
		_ = term.Restore(fd, before) // if this fails, nothing else can be done
		e.note("")                   // the line break at the end was not echoed either
	}()
	// SIGINT and SIGTERM end e.ctx. The signals below would end or stop the process
	// without restoring the terminal.
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	defer signal.Stop(ends)
	type line struct {
		value []byte
		err   error
	}
	read := make(chan line, 1)
	// After a signal the goroutine keeps running: a read of a terminal cannot be interrupted, and
	// the process ends anyway.
	go func() {
		value, err := term.ReadPassword(fd)
		read <- line{value, err}
	}()
	select {
	case l := <-read:
		if l.err != nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the secret cannot be read: %w", l.err)
		}
		return l.value, nil
	case s := <-ends:
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "reading the secret was ended by the signal %s, nothing was stored", s)
	case <-e.ctx.Done():
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "reading the secret was interrupted, nothing was stored")
	}
}
