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

// subject is what demo, bench and torture need to run servers of their own: the path of this program, an
// environment in which the scripted model is the only setting of Holdfast, and an empty directory.
type subject struct {
	binary string
	env    []string
	dir    string
}

// newSubject makes a subject (what bench, demo and torture need to run servers) with a new
// directory below dir, or below the system's temporary directory if dir is empty.
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
	// Without this setting, an API key in the environment would make these servers ask a real model.
	s.env = append(s.env, "HOLDFAST_DEFAULT_MODEL=scripted")
	if s.dir, err = os.MkdirTemp(dir, "holdfast-"); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "temporary directory", "cannot make a temporary directory for the servers that this command starts: %w", err).
			WithHint("choose another place for the temporary directory with --dir DIR")
	}
	return s, nil
}

// endWithReader cancels e.ctx when the reader of the output is gone, so that servers that the
// command started do not outlive it. SIGPIPE is caught and ignored until stop is called: it would
// end the process at once, and connections to a killed server cause it as well. stop cancels e.ctx.
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

// remove deletes the directory; if keep is set, it leaves the directory and prints its path.
func (s *subject) remove(e *env, keep bool) {
	if keep {
		e.note("kept for inspection: %s", s.dir)
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		e.note("the temporary directory was not removed: %v", err)
	}
}

// judged is a report of bench or torture. OK reports whether all checks of the report passed.
type judged interface {
	OK() bool
	Print(w io.Writer) error
}

// printReport prints a report, as text or JSON, and returns exit code 1 if the report is not OK.
func (e *env) printReport(r judged) error {
	return e.judge(r, r.OK(), func() error { return r.Print(e.stdout) })
}

// judge prints doc with --json, else calls show, which prints it for people. It returns exit code 1 unless ok is set.
func (e *env) judge(doc any, ok bool, show func() error) error {
	var err error
	if e.json {
		err = e.print(doc)
	} else {
		err = show()
	}
	return verdict(ok, err)
}

// verdict returns err, the error of printing an outcome; if err is nil, it returns exit code 1 unless ok is set.
func verdict(ok bool, err error) error {
	if err == nil && !ok {
		return &exitError{1}
	}
	return err
}
