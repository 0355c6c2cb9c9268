package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast"
)

// readHidden reads a line from a terminal without echo. It turns echo on again however reading
// ends, also after a signal.
func readHidden(e *env, f *os.File) ([]byte, error) {
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "secret set", "the state of this terminal cannot be read: %w", err)
	}
	defer func() {
		_ = term.Restore(fd, before) // an error cannot be handled
		e.note("")                   // the newline was not echoed either
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
			return nil, holdfast.Errorf(holdfast.KindInvalid, "secret set", "the value of the secret cannot be read: %w", l.err)
		}
		return l.value, nil
	case s := <-ends:
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "secret set", "reading the secret was ended by %s, nothing was stored", s)
	case <-e.ctx.Done():
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "secret set", "reading the secret was interrupted, nothing was stored")
	}
}
