package scripted

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// asleep is how late the kernel may end a sleep on an idle machine. The last part of a nap, of
// this length, is waited in a loop.
const asleep = 250 * time.Microsecond

// nap sleeps for a short time and ends precisely. It does nothing for times above coarse.
func nap(d time.Duration) {
	if d <= 0 || d > coarse {
		return
	}
	end := monotonic() + d
	if d > asleep {
		ts := syscall.NsecToTimespec((d - asleep).Nanoseconds())
		// If the sleep ends early, the loop below waits for the rest.
		_ = syscall.Nanosleep(&ts, nil)
	}
	for monotonic() < end {
		runtime.Gosched()
	}
}

// monotonic returns the time of the kernel's clock. The time package's clock cannot be used: in
// synctest tests it does not advance while a goroutine runs.
func monotonic() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 1 << 62
	}
	return time.Duration(ts.Nano())
}
