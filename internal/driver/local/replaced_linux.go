package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// startTries bounds how often a box is started while files of the host that it mounts are
// being replaced, as a package manager does.
const startTries = 8

// errReplaced says that a file of the host went away between two looks at it.
var errReplaced = errors.New("it was replaced meanwhile")

// changed adds errReplaced to an error of a look at a file that was there, or was of
// another kind, a moment ago.
func changed(err error) error {
	for _, no := range []error{unix.ENOENT, unix.ESTALE, unix.ENOTDIR, unix.EINVAL} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", err, errReplaced)
		}
	}
	return err
}

// again calls start until it fails for another reason than a replaced file, or too often,
// with longer and longer waits: a package manager unpacks one file after the other.
// Nothing is left of the try before. last says that no try follows.
func again(ctx context.Context, start func(last bool) error) error {
	var err error
	for try := range startTries {
		err = start(try == startTries-1)
		if !errors.Is(err, errReplaced) && !holdfast.IsKind(err, holdfast.KindBusy) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond << try):
		case <-ctx.Done():
			return err
		}
	}
	hint := holdfast.HintOf(err)
	if hint == "" {
		hint = "start it again once the package manager is done"
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "files of the host were replaced at each of %d tries: %w", startTries, err).
		WithHint("%s", hint)
}

// hostFiles remembers what boxes see of the host, so that one that starts while a file is
// away does not miss it for all its life. Safe for concurrent use; the zero value is ready.
type hostFiles struct {
	mu sync.Mutex
	// seen are the paths inside of boxes.
	seen map[string]bool
}

// compare returns errReplaced when something is missing that former boxes had. What is
// still away at the last try is gone: boxes start without it from then on.
func (h *hostFiles) compare(mounts []wire.Mount, last bool) error {
	now := make(map[string]bool, len(mounts))
	for _, m := range mounts {
		now[m.Target] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !last {
		for target := range h.seen {
			if !now[target] {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "the host has nothing for %s any more: %w", target, errReplaced)
			}
		}
	}
	h.seen = now
	return nil
}
