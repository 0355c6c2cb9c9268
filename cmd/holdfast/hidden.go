package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast"
)

// readHidden reads a line from a terminal that does not show it. However it ends, by a
// signal as well, the terminal shows again what is typed.
func readHidden(e *env, f *os.File) ([]byte, error) {
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "secret set", "this terminal: %w", err)
	}
	defer func() {
		_ = term.Restore(fd, before) // nothing else could be done
		e.note("")                   // the line's end was not shown either
	}()
	// SIGINT and SIGTERM end e.ctx. These would end the process, or stop it, with the
	// terminal as it is.
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	defer signal.Stop(ends)
	type line struct {
		value []byte
		err   error
	}
	read := make(chan line, 1)
	// It outlives a signal: a read of a terminal cannot be ended, and the process ends.
	go func() {
		value, err := term.ReadPassword(fd)
		read <- line{value, err}
	}()
	select {
	case l := <-read:
		if l.err != nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "secret set", "the value cannot be read: %w", l.err)
		}
		return l.value, nil
	case s := <-ends:
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "secret set", "ended by %s, nothing is kept", s)
	case <-e.ctx.Done():
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "secret set", "interrupted, nothing is kept")
	}
}
