package scripted

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// asleep is how late the kernel may end a sleep in an idle machine: the rest of a
// nap is waited for awake.
const asleep = 250 * time.Microsecond

// nap is a short sleep that ends on time.
func nap(d time.Duration) {
	if d <= 0 || d > coarse {
		return
	}
	end := monotonic() + d
	if d > asleep {
		ts := syscall.NsecToTimespec((d - asleep).Nanoseconds())
		// Woken early, the loop does the rest.
		_ = syscall.Nanosleep(&ts, nil)
	}
	for monotonic() < end {
		runtime.Gosched()
	}
}

// monotonic is the kernel's clock: a test's own stands still while nobody waits.
func monotonic() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 1 << 62
	}
	return time.Duration(ts.Nano())
}
