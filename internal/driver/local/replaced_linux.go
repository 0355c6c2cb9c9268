package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// startTries is how often the start of a box is tried while files of the host that it mounts are
// being replaced, for example by a package manager.
const startTries = 8

// errReplaced means that a file of the host disappeared between two accesses to it.
var errReplaced = errors.New("a file of the host was replaced while a box was starting")

// changed adds errReplaced to an error if the error says that a file is missing, or has another
// type than a moment ago.
func changed(err error) error {
	for _, no := range []error{unix.ENOENT, unix.ESTALE, unix.ENOTDIR, unix.EINVAL} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", err, errReplaced)
		}
	}
	return err
}

// again calls start until it succeeds, ctx ends, or start has been tried startTries times. It tries again only after an
// error with errReplaced or of the kind busy, and waits longer each time: a package manager unpacks one file after the
// other. Each try must remove what it made. last reports that no other try follows.
func again(ctx context.Context, start func(last bool) error) error {
	var err error
	for try := range startTries {
		err = start(try == startTries-1)
		if !errors.Is(err, errReplaced) && !holdfast.IsKind(err, holdfast.KindBusy) || ctx.Err() != nil {
			return err
		}
		if clock.Pause(ctx, 2*time.Millisecond<<try) != nil {
			return err
		}
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the box did not start in %d tries: in each, a file of the host was replaced, or the kernel or the server was short of a resource: %w", startTries, err).
		WithHint("%s", cmp.Or(holdfast.HintOf(err), "start the box again once the package manager has finished"))
}

// hostFiles remembers which host files boxes have had, so that a box that starts while a file is missing for
// a moment does not lack it for all its life. Safe for concurrent use; the zero value is ready.
type hostFiles struct {
	mu sync.Mutex
	// seen holds the mount points of the latest box that passed compare.
	seen map[string]bool
}

// compare returns an error with errReplaced if mounts lacks a mount point of the latest box, because a file of the
// host is missing. In the last try it accepts that: from then on boxes start without the file.
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
				return holdfast.Errorf(holdfast.KindUnavailable, op, "the host no longer has a file for the path %s in the box: %w", target, errReplaced)
			}
		}
	}
	h.seen = now
	return nil
}
