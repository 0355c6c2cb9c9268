package local

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestStartsAreTriedAgain: after a replaced file and nothing else, a bounded number of
// times, and the error names what to do.
func TestStartsAreTriedAgain(t *testing.T) {
	busy := holdfast.Errorf(holdfast.KindBusy, op, "it went away in the box")
	tries := func(ctx context.Context, errs ...error) (n, lasts int, err error) {
		err = again(ctx, func(last bool) error {
			if last {
				lasts++
			}
			n++
			return errs[min(n, len(errs))-1]
		})
		return n, lasts, err
	}
	for _, gone := range []error{unix.ENOENT, unix.ESTALE, unix.ENOTDIR, unix.EINVAL} {
		if n, _, err := tries(t.Context(), changed(gone), busy, nil); n != 3 || err != nil {
			t.Errorf("%v: %d tries, %v", gone, n, err)
		}
	}
	if n, _, err := tries(t.Context(), changed(unix.EPERM)); n != 1 || !errors.Is(err, unix.EPERM) {
		t.Errorf("another error: %d tries, %v", n, err)
	}
	n, lasts, err := tries(t.Context(), busy)
	if n != startTries || lasts != 1 || !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "package manager") {
		t.Errorf("for ever: %d tries, %d last ones, %v, hint %q", n, lasts, err, holdfast.HintOf(err))
	}
	hinted := holdfast.Errorf(holdfast.KindUnavailable, op, "no: %w", errReplaced).WithHint("do this")
	if _, _, err = tries(t.Context(), hinted); holdfast.HintOf(err) != "do this" {
		t.Errorf("the hint is %q", holdfast.HintOf(err))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if n, _, err = tries(ended, busy); n != 1 || err == nil {
		t.Errorf("without time: %d tries, %v", n, err)
	}
}

// TestWhatIsAwayForAMomentIsMissed: a box does not start without what others had, unless
// it is still away at the last try.
func TestWhatIsAwayForAMomentIsMissed(t *testing.T) {
	var h hostFiles
	with := []wire.Mount{{Target: "/etc/ld.so.cache"}, {Target: "/etc/ssl/certs"}}
	without := with[:1]
	for i, c := range []struct {
		mounts []wire.Mount
		last   bool
		missed string
	}{
		{without, false, ""}, // the first box takes what there is
		{with, false, ""},
		{without, false, "/etc/ssl/certs"},
		{without, false, "/etc/ssl/certs"},
		{with, false, ""},
		{without, true, ""},
		{without, false, ""}, // it is gone
	} {
		err := h.compare(c.mounts, c.last)
		if (err == nil) != (c.missed == "") || err != nil && (!errors.Is(err, errReplaced) || !strings.Contains(err.Error(), c.missed)) {
			t.Errorf("%d: %v, want %q", i, err, c.missed)
		}
	}
}
