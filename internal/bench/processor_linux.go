package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the CPU time of a process, in user mode and in the kernel, with its threads that have ended;
// 0 if it is unknown.
func processorTime(pid int) time.Duration {
	var ts unix.Timespec
	// The number of the clock is what clock_getcpuclockid(3) makes of the pid.
	if unix.ClockGettime(int32(^pid<<3|2), &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
