// Package lifecycle starts and ends the process: signals, the data directory with its identity and
// address, memory settings, and the owner token on disk with which clients reach the server.
//
// cmd, app and internal/checks import it; it imports the vocabulary and internal/durable. Invariant
// (I-22): a token file that is incomplete or readable by others is refused.
package lifecycle

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// Signals ends a context at the first SIGINT or SIGTERM, with a cause that names
// the signal, so that the process can drain. From then on signals have their
// default effect again: a second one ends a drain that takes too long. stop
// ends the context and the watch for signals.
func Signals(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(got)
		select {
		case s := <-got:
			signal.Stop(got) // before ctx ends, so that a second signal ends the process
			cancel(holdfast.Errorf(holdfast.KindUnavailable, "", "the process was ended by the signal %s", s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
