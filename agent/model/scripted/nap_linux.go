package scripted

import (
	"syscall"
	"time"
)

// nap is a short sleep that the kernel ends on time.
func nap(d time.Duration) {
	if d <= 0 || d > coarse {
		return
	}
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	// Woken early, the timer after it does the rest.
	_ = syscall.Nanosleep(&ts, nil)
}
