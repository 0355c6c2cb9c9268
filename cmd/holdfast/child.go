package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// subject is what demo, bench and torture need to run servers of their own: this
// program, an environment without our own settings, and an empty directory.
type subject struct {
	binary string
	env    []string
	dir    string
}

// newSubject makes a temporary directory, below dir or the system's.
func newSubject(dir string) (*subject, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &subject{binary: self}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HOLDFAST_") {
			s.env = append(s.env, kv)
		}
	}
	// A key in the environment must not make them ask a real model.
	s.env = append(s.env, "HOLDFAST_DEFAULT_MODEL=scripted")
	if s.dir, err = os.MkdirTemp(dir, "holdfast-"); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "temporary directory", "%w", err).
			WithHint("choose another place with --dir DIR")
	}
	return s, nil
}

// endWithReader cancels the command when nobody reads its output any more: the server
// that it started must not outlive it. stop ends that. SIGPIPE is caught, since it
// would end the process at once, but otherwise ignored: connections to a killed server
// cause it as well.
func (e *env) endWithReader() (stop func()) {
	ctx, cancel := context.WithCancelCause(e.ctx)
	e.ctx = ctx
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGPIPE)
	e.stdout, e.stderr = &endsWithReader{e.stdout, cancel}, &endsWithReader{e.stderr, cancel}
	return func() {
		signal.Stop(caught)
		cancel(nil)
	}
}

// endsWithReader calls cancel when a write fails because the reader is gone.
type endsWithReader struct {
	io.Writer
	cancel context.CancelCauseFunc
}

func (w *endsWithReader) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		w.cancel(syscall.EPIPE)
	}
	return n, err
}

// remove deletes the directory; it is kept when something in it is of interest.
func (s *subject) remove(e *env, keep bool) {
	if keep {
		e.note("kept for a look: %s", s.dir)
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		e.note("not removed: %v", err)
	}
}

// judged is what bench, torture and soak came to.
type judged interface {
	OK() bool
	Print(w io.Writer) error
}

// verdict shows a report; one that is not as it should be ends with 1.
func (e *env) verdict(r judged) error {
	var err error
	if e.json {
		err = e.print(r)
	} else {
		err = r.Print(e.stdout)
	}
	if err == nil && !r.OK() {
		err = &exitError{1}
	}
	return err
}
